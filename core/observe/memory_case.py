"""What is judged when memory has run out, and how it is put into words. Pure functions; any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from devexplorer.core.observe.live_memory import LiveMemory, Root
from devexplorer.core.observe.memory_report import CauseKind, MemoryCause
from devexplorer.core.observe.moment import Moment


class MemoryCase(NamedTuple):
    """What is judged."""

    live: LiveMemory
    moment: Moment
    requested: int
    others: int
    """Bytes of other processes, where known."""
    name_of: Callable[[object], str]
    """The variable that leads to an object, with where it is; empty: none."""
    path_of: Callable[[object], str]
    """The variable alone."""
    outside: Callable[[object], bool]
    """Whether that variable is outside of the forward that runs."""

    adrift: Callable[[object], bool]
    """Whether no variable leads to an object that Python alone can hold: a cycle of references, not freed yet."""

    @property
    def usable(self) -> int:
        """What tensors can have."""
        return max(self.live.card.usable, 1)

    def share(self, size: int) -> float:
        """Of the device."""
        return size / self.usable


def make_cause(kind: CauseKind, text: str, remedies: list[str], *evidence: str) -> MemoryCause:
    """Without evidence that is empty."""
    return MemoryCause(kind=kind, text=text, evidence=tuple(filter(None, evidence)), remedies=tuple(remedies))


def model_words(case: MemoryCase, root: Root) -> str:
    """`teacher (Net)`, or its class alone where no variable leads to it but the `self` of its own methods."""
    name, kind = case.path_of(root.module).removeprefix("self."), type(root.module).__name__
    if name == "self":
        return kind
    return f"{name} ({kind})" if name else kind


def place_words(case: MemoryCase) -> str:
    """`line 12: x = model(x)`, where that is known."""
    place = case.moment.place
    return "" if place is None or not place.text else f"line {place.line}: {place.text}"
