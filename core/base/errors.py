"""The exceptions of DevExplorer, one tree; text for people (`Message`). No thread, no torch, no Qt.

DevExplorerError          every message is for a person: what is wrong, what would be right
├── BadInput              what the user gave cannot be used (command line: exit code 2)
│   └── DoesNotFit        refused before anything was allocated
├── Unavailable           this machine, driver or torch lacks something; says what
├── Cancelled             the user ended it; nothing has changed
├── MoveFailed            a move failed half-way and was rolled back
├── RollbackFailed        a failed change could not be reverted completely: the workspace is not as it was
└── LinkError             a frame on the link is malformed or too large

At run time a `Message` is a `str`, so records, JSON and recordings hold plain text. To the type checker it is a type
without the methods of `str`: text can be shown and continued, but code that asks what it says is an error. What code
needs to know is a field beside the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING


class DevExplorerError(Exception):
    """The root: `str(error)` is one line for a person."""


class BadInput(DevExplorerError):
    """What the user gave cannot be used. Several findings can be reported at once.

    `virtual_helps` says that the same input would work with virtual GPUs, so that they can be offered.
    """

    def __init__(self, *findings: str, virtual_helps: bool = False) -> None:
        super().__init__("; ".join(findings))
        self.findings = findings
        self.virtual_helps = virtual_helps


class DoesNotFit(BadInput):
    """Refused before anything was allocated: `device` has `free_bytes`, the request needs `needed_bytes`; 0: a
    CUDA context, whose size only the driver knows."""

    def __init__(self, message: str, *, device: str, needed_bytes: int, free_bytes: int) -> None:
        super().__init__(message)
        self.device = device
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes


class Unavailable(DevExplorerError):
    """This machine, driver or torch lacks something."""


class Cancelled(DevExplorerError):
    """The user ended it; nothing has changed."""


class MoveFailed(DevExplorerError):
    """A move failed half-way; nothing has changed."""


class RollbackFailed(DevExplorerError):
    """A failed change could not be reverted completely: the workspace is not as it was."""


class LinkError(DevExplorerError):
    """A frame on the link is malformed or too large."""


def first_line(error: object) -> str:
    """The first line of an error's or a warning's message, without torch's note of where it arose; its type when it has
    no message."""
    try:
        lines = str(error).strip().splitlines()
    except BaseException:  # code of the user's in `__str__`
        lines = []
    return lines[0].split(" (Triggered internally")[0].rstrip(".") if lines else type(error).__name__


def typed_line(error: BaseException) -> str:
    """`ValueError: first line`, or the type alone."""
    kind, line = type(error).__name__, first_line(error)
    return kind if line == kind else f"{kind}: {line}"


def out_of_host_memory(error: BaseException) -> bool:
    """Whether this machine's memory is used up. torch has no exception for that: its CPU allocator raises a plain
    RuntimeError."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))


if TYPE_CHECKING:

    class Message:
        """A sentence or more; `str(message)` where it is shown."""

        def __init__(self, text: str = "") -> None: ...
        def __add__(self, more: str | Message) -> Message: ...
        def __bool__(self) -> bool: ...

else:
    Message = str
