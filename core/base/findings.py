"""Collects everything that is wrong with an input, so that one error can report all of it. No torch, any thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, overload

from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.formats import parse_count, parse_seconds

T = TypeVar("T")
D = TypeVar("D")


class Findings:
    """Take values through `checked`, then call `demand_none`."""

    def __init__(self) -> None:
        self._errors: list[BadInput] = []

    def add(self, *findings: str, virtual_helps: bool = False) -> None:
        """Note sentences that say what is wrong."""
        if findings:
            self._errors.append(BadInput(*findings, virtual_helps=virtual_helps))

    @overload
    def checked(self, make: Callable[[], T]) -> T | None: ...

    @overload
    def checked(self, make: Callable[[], T], otherwise: D) -> T | D: ...

    def checked(self, make: Callable[[], T], otherwise: D | None = None) -> T | D | None:
        """What `make` returns, or `otherwise` when it raises `BadInput`, which is noted."""
        try:
            return make()
        except BadInput as error:
            self._errors.append(error)
            return otherwise

    def passes(self, check: Callable[[], object]) -> bool:
        """Whether `check` finds nothing wrong."""
        before = len(self._errors)
        self.checked(check)
        return len(self._errors) == before

    def demand_none(self) -> None:
        """Raise what was found: the error itself, or one with every finding."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise BadInput(*self.findings, virtual_helps=self.virtual_helps)

    @property
    def findings(self) -> tuple[str, ...]:
        """Each finding once, in the order of discovery."""
        return tuple(dict.fromkeys(finding for error in self._errors for finding in error.findings))

    @property
    def virtual_helps(self) -> bool:
        """Whether the same input would work with virtual GPUs."""
        return any(error.virtual_helps for error in self._errors)

    # options that were given as text; None stays None

    def parsed(self, text: str | None, parse: Callable[[str], T], otherwise: D) -> T | D:
        """What `parse` makes of it; `otherwise` where it is not given, or wrong."""
        return otherwise if text is None else self.checked(partial(parse, text), otherwise)

    def count(self, text: str | None, name: str) -> int | None:
        """A whole number above 0."""
        return None if text is None else self.checked(partial(parse_count, text, name))

    def seconds(self, text: str | None, name: str = "") -> float | None:
        """A duration in seconds."""
        return None if text is None else self.checked(partial(parse_seconds, text, name))

    def one_of(self, text: str | None, known: Sequence[str], name: str) -> str | None:
        """`text` when it is one of these."""
        if text is None or text in known:
            return text
        self.add(f"there is no {name} '{text}'; there are {', '.join(filter(None, known))}")
        return None
