"""What is run: the arguments of ssh, and the one line that its shell at the far end gets. Pure functions, any thread.

The line has to mean the same in sh, bash, zsh, dash, fish, csh and tcsh. Each of them takes `exec /bin/sh -c '...'`
with no single quote, line end, backslash or exclamation mark inside; from there on it is POSIX. It looks for a Python
that can read stage 2 (`far_side.py`) and lets it do so. The line has the marker in it backwards: a login script that
prints the command it was called with does not print the marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from devexplorer.core.machines.ssh.hosts import checked

CONNECT_S = 15
"""Until the host answers at all; a jump host has its own."""
ALIVE_S = 5
"""Between two questions whether the far end is still there, and after `ALIVE_MISSED` without an answer ssh ends."""
ALIVE_MISSED = 5

PYTHONS = (
    "python3", "python3.14", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9", "python3.8",
    "python", "/usr/bin/python3", "/usr/libexec/platform-python",
)  # fmt: skip
"""In this order; what PATH finds can be a script that fails. The last is where Red Hat hides its own."""
NONE, OLD = "none", "old"
"""Said in place of the marker: no Python there, or none that is new enough."""

_CHECK = "import sys; sys.exit(sys.version_info < (3, 6))"
# no string in it, because both kinds of quotation marks are in use around it
_LOADER = (
    "import sys, os; a = sys.argv; end = bytes([10]); os.write(1, end + a[1][::-1].encode() + end);"
    " exec(compile(sys.stdin.buffer.read(int(a[2])), a[0], a[3]))"
)
# -I -S: no variable, no user's folder, no sitecustomize that prints. The second round is for a library path that keeps
# Python from starting.
_SCRIPT = (
    "PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin; export PATH; found=" + NONE + "; for round in 1 2; do"
    " for python in " + " ".join(PYTHONS) + "; do"
    " command -v $python >/dev/null 2>&1 && found=" + OLD + ";"
    f' if $python -I -S -c "{_CHECK}" </dev/null >/dev/null 2>&1; then'
    f' exec $python -I -S -c "{_LOADER}" $0 $1 exec; fi; done; unset LD_LIBRARY_PATH LD_PRELOAD; done;'
    " echo; echo $0 $found"
)


@dataclass(frozen=True, slots=True)
class Markers:
    """The lines that tell what is ours from what a login script prints."""

    hexadecimal: str
    """32 digits, new for each connection."""

    @property
    def ready(self) -> bytes:
        """Python is there and reads stage 2."""
        return b"\n" + self.hexadecimal.encode() + b"\n"

    def missing(self, how: str) -> bytes:
        """There is no Python that could."""
        return f"\n{self.hexadecimal[::-1]} {how}\n".encode()

    def far_command(self, stage_2_bytes: int) -> str:
        """The line for the shell at the far end."""
        return f"exec /bin/sh -c '{_SCRIPT}' {self.hexadecimal[::-1]} {stage_2_bytes}"


def ssh_command(host: str, far_command: str, *, program: str = "ssh", connect_s: int = CONNECT_S) -> Sequence[str]:
    """The arguments of ssh. All else is as the user's own configuration has it.

    A connection that they share (`ControlPath`) is used where there is one. None is made: it would end with ours, or
    stay behind. Their forwardings are not repeated: the ports are taken already, or would be given away.
    """
    settings = {
        "ConnectTimeout": connect_s,
        "ServerAliveInterval": ALIVE_S,
        "ServerAliveCountMax": ALIVE_MISSED,
        "ControlMaster": "no",
        "ClearAllForwardings": "yes",
        "RemoteCommand": "none",  # theirs, for their terminal
        "LogLevel": "INFO",  # why something failed is read from what it prints
    }
    options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    return [program, "-T", "-a", "-x", *options, "--", checked(host), far_command]
