"""Logging in: from the start of ssh to the moment when Python there says the marker, or why it never does. On the
thread of the connection."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from devexplorer.core.machines.ssh.askpass import Askpass
from devexplorer.core.machines.ssh.child import Ended, SshChild, TimedOut
from devexplorer.core.machines.ssh.command import NONE, OLD, Markers
from devexplorer.core.machines.ssh.failures import OWN_CODE, ConnectionFailed, cut, of_login, of_ssh, one_line_each
from devexplorer.core.machines.ssh.records import Failure, FailureKind

KEPT_NOISE = 1 << 14
"""Bytes of what login scripts print that are kept for an error's text."""
MOST_NOISE = 64 << 20
"""Bytes; login scripts that print more print without end."""


class Login(NamedTuple):
    """One login to one host."""

    host: str
    child: SshChild
    askpass: Askpass | None
    connect_s: float
    login_s: float

    def wait(self, markers: Markers) -> None:
        """Read up to the marker, however much is printed before it. Raises `ConnectionFailed` and `Cancelled`."""
        noise, count = b"\n", 0
        missing: dict[bytes, FailureKind] = {markers.missing(NONE): "no python", markers.missing(OLD): "old python"}
        try:
            while markers.ready not in noise:
                for line, kind in missing.items():
                    if line in noise:
                        self._fail(kind)
                if count > MOST_NOISE:
                    self._fail("login floods", _last_line(noise))
                piece = self.child.read_some(self.login_s)
                count += len(piece)
                noise = noise[-KEPT_NOISE:] + piece
        except Ended:
            self._refused(noise)
        except TimedOut:
            last = _last_line(noise) or _last_line(self.child.words.encode())
            self._fail("login waits" if last else "timed out", last, self.login_s)

    def _refused(self, noise: bytes) -> NoReturn:
        """ssh ended, or was not given what it asked for."""
        refused = None if self.askpass is None else self.askpass.refused
        if refused is not None:
            if refused.kind == "host key":
                self._fail("host key unknown")
            self._fail("prompt refused", f"the {refused.kind} was not given")
        code, words = self.child.ended()
        if code == OWN_CODE:
            raise ConnectionFailed(of_ssh(self.host, words, self.connect_s))
        raise ConnectionFailed(of_login(self.host, noise.decode("utf-8", "replace"), words, code))

    def _fail(self, kind: FailureKind, detail: str = "", seconds: float = 0.0) -> NoReturn:
        raise ConnectionFailed(Failure(kind=kind, host=self.host, detail=detail, seconds=seconds))


def _last_line(printed: bytes) -> str:
    lines = one_line_each(printed.decode("utf-8", "replace"))
    return cut(lines[-1]) if lines else ""
