"""What a connection over ssh tells while it is made, and why there is none: from what ssh printed to a
`ConnectionFailure`, and from that to one line. Frozen records and pure functions, any thread.

OpenSSH's messages are English on every system, and its exit code is 255 when the failure is its own; any other code is
the far side's, whose login scripts may print anything.
"""

from __future__ import annotations

import re
from typing import Literal

from devexplorer.core.base import Unavailable, printable, seconds_text
from devexplorer.core.records.base import Record

PromptKind = Literal["password", "passphrase", "code", "host key", "confirmation", "notice"]
"""What ssh asks for. A `host key` is answered with yes, no or the fingerprint, a `confirmation` with yes or no; a
`notice` (touch the key) has no answer, ssh withdraws it."""

Step = Literal["connecting", "python", "code", "packages", "starting"]
"""What is being done: reaching the host and logging in, looking for Python, copying our code, getting packages,
starting what was asked for."""

FailureKind = Literal[
    "no ssh",
    "bad host",
    "bad configuration",
    "unknown host",
    "refused",
    "unreachable",
    "timed out",
    "closed",
    "denied",
    "host key unknown",
    "host key changed",
    "prompt refused",
    "no shell",
    "restricted shell",
    "login ended",
    "login waits",
    "login floods",
    "no python",
    "old python",
    "python refused",
    "no torch",
    "no space",
    "read-only",
    "packages",
    "not started",
    "garbage",
    "lost",
    "other",
]


class Prompt(Record):
    """ssh asks something: it waits for `Connection.answer`, for as long as the far side does."""

    number: int
    kind: PromptKind
    text: str
    """Word for word, without control characters; it can have several lines."""


class Withdrawn(Record):
    """ssh does not ask any more."""

    number: int


class ConnectProgress(Record):
    """What is being done."""

    step: Step
    done: float | None = None
    """The share that is done; None: it is not known."""
    detail: str = ""
    """What it is done to: a package, a Python."""


class Said(Record):
    """A line that ssh, a banner or a login script wrote beside, without control characters."""

    text: str


Report = Prompt | Withdrawn | ConnectProgress | Said


class ConnectionFailure(Record):
    """Why there is no connection."""

    kind: FailureKind
    host: str
    detail: str = ""
    """What ssh or the far side said about it, one line without control characters."""
    seconds: float = 0.0
    """Of a time limit: how long it was."""


OWN_CODE = 255
LONGEST = 300
"""Characters of what somebody else said, in one line of ours."""

_OF_SSH: dict[FailureKind, str] = {
    "host key changed": r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for .* has changed",
    "host key unknown": r"Host key verification failed|No .* host key is known for",
    "unknown host": r"Could not resolve hostname",
    "refused": r"Connection refused",
    "timed out": r"(Connection|Operation) timed out|timed out during banner exchange|Timeout, server .* not responding",
    "unreachable": r"No route to host|Network is unreachable|Host is down",
    "denied": r"Permission denied \(|Too many authentication failures|No supported authentication methods",
    "bad configuration": r"Bad configuration option|Bad owner or permissions on|: line \d+: |^command-line: ",
    "closed": (
        r"^kex_exchange_identification: |^Connection (closed|reset) by|^Unable to negotiate|stdio forwarding failed"
    ),
}
"""What ssh prints, the more telling first."""
_OF_SHELLS: dict[FailureKind, str] = {
    "restricted shell": r"\brestricted\b|^rbash: ",
    "no shell": (
        r"account is (currently )?not available|unrecognized command '?exec |What do you think I am"
        r"|[Ii]nteractive (git )?shell is (not enabled|disabled)|allows sftp connections only"
    ),
}
_FINAL = re.compile("|".join(pattern for kind, pattern in _OF_SSH.items() if kind != "host key changed"))
"""Of a changed key ssh says more than we do, and what to do about it."""

_TEXTS: dict[FailureKind, str] = {
    "no ssh": "ssh is not on PATH; install OpenSSH's client (Debian and Ubuntu: apt-get install openssh-client)",
    "bad host": "{detail}",
    "bad configuration": "ssh does not accept its configuration for {host}: {detail}",
    "unknown host": "{host} is not known: no such name in ~/.ssh/config or in the network",
    "refused": "{host} refuses the connection: nothing listens for ssh there",
    "unreachable": "{host} cannot be reached: {detail}",
    "timed out": "{host} did not answer within {seconds}",
    "closed": "{host} closed the connection before the login: {detail}",
    "denied": "{host} did not accept the login: {detail}",
    "host key unknown": "The key of {host} is not known, and was not accepted; 'ssh {host}' in a terminal shows it",
    "host key changed": (
        "The key of {host} is not the one that ssh knows: it was reinstalled, or the connection is intercepted."
        " Run 'ssh {host}' in a terminal, which says what to do"
    ),
    "prompt refused": "The login to {host} was cancelled: {detail}",
    "no shell": "The account on {host} may not run programs: {detail}",
    "restricted shell": "The account on {host} has a restricted shell, which starts no program: {detail}",
    "login ended": "The login scripts of {host} (or a command forced there) ended the connection: {detail}",
    "login waits": "The login scripts of {host} did not come to an end within {seconds}: {detail}",
    "login floods": "The login scripts of {host} print without end: {detail}",
    "no python": "There is no Python on {host}: python3 was looked for on PATH",
    "old python": "Every Python on PATH of {host} is older than 3.6",
    "python refused": "{detail}",
    "no torch": "No Python with torch 2.4 or newer was found on {host} (found: {detail})",
    "no space": "There is no space left on {host}: {detail}",
    "read-only": "Nothing can be written on {host}: {detail}",
    "packages": "The packages that DevExplorer needs could not be put on {host}: {detail}",
    "not started": "DevExplorer did not start on {host}: {detail}",
    "garbage": "What {host} answers is not DevExplorer's: {detail}",
    "lost": "The connection to {host} was lost: {detail}",
    "other": "ssh could not connect to {host}: {detail}",
}


class ConnectionFailed(Unavailable):
    """There is no connection, or none any more; `failure` says why."""

    def __init__(self, failure: ConnectionFailure) -> None:
        super().__init__(failure_text(failure))
        self.failure = failure


def failure_text(failure: ConnectionFailure) -> str:
    """One line for a person."""
    detail = failure.detail or "it did not say why"
    return _TEXTS[failure.kind].format(host=failure.host, detail=detail, seconds=seconds_text(failure.seconds))


def of_ssh(host: str, words: str, seconds: float = 0.0) -> ConnectionFailure:
    """What ssh's own words on standard error mean, when it ended by itself."""
    lines = one_line_each(words)
    for kind, pattern in _OF_SSH.items():
        said = next((line for line in lines if re.search(pattern, line)), None)
        if said is not None:
            return ConnectionFailure(kind=kind, host=host, detail=cut(said), seconds=seconds)
    return ConnectionFailure(kind="other", host=host, detail=cut(lines[-1]) if lines else "")


def of_login(host: str, printed: str, words: str, code: int | None) -> ConnectionFailure:
    """The far side ended before anything of ours was started: what it printed on standard output, and on standard
    error."""
    lines = one_line_each(words) + one_line_each(printed)
    for kind, pattern in _OF_SHELLS.items():
        said = next((line for line in lines if re.search(pattern, line)), None)
        if said is not None:
            return ConnectionFailure(kind=kind, host=host, detail=cut(said))
    last = f"the last line was: {cut(lines[-1])}" if lines else f"exit code {code}"
    return ConnectionFailure(kind="login ended", host=host, detail=last)


def is_final(line: str) -> bool:
    """Whether a line of ssh's is the reason of its end, which is told in our own words."""
    return _FINAL.search(line) is not None


def one_line_each(text: str) -> list[str]:
    """The lines that say something, without control characters."""
    return [line for line in (printable(line).strip() for line in text.splitlines()) if line]


def cut(text: str) -> str:
    """Not longer than a line of ours can be."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
