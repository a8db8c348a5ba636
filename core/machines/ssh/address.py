"""The address of a machine that ssh knows by a name. Any thread; ssh only reads its configuration for it."""

from __future__ import annotations

import subprocess
from functools import cache

from devexplorer.core.machines.ssh.hosts import checked

LIMIT_S = 5.0


@cache
def address(host: str, program: str = "ssh") -> str:
    """`HostName` of the user's configuration for this host; empty where ssh does not say."""
    try:
        said = subprocess.run(
            [program, "-G", "--", checked(host)], stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = (line.partition(" ") for line in said.stdout.decode(errors="replace").splitlines())
    return next((value.strip() for name, _, value in lines if name == "hostname"), "")
