"""What a connection over ssh tells while it is made, and why there is none. Plain frozen records; their words are made
where they are shown (`core.machines.ssh.failures` has those of failures)."""

from __future__ import annotations

from typing import Literal

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


class FarEnd(Record):
    """The machine at the far end."""

    host: str
    """As the user named it."""
    name: str = ""
    """As it calls itself."""
    user: str = ""
    home: str = ""
    architecture: str = ""
    """`x86_64`."""
    system: str = ""
    """`Linux`."""
    python: str = ""
    """The version of the Python that serves the connection, not of the engine's."""
