"""Changes attributes of torch for a while, and takes every change back. The thread that examines; others see the
changes, too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

_NOTHING = object()


class Patches:
    """What was put in place of what. Not for reuse after `undo`."""

    def __init__(self) -> None:
        self.on = True
        """Whether the changes hold. A function that other code kept (`from torch.cuda import is_available`) asks it at
        each call."""
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a module or class."""
        self._before.append((owner, name, vars(owner).get(name, _NOTHING)))
        setattr(owner, name, value)

    def call(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        """Set a function or method; who kept it finds the one that was there before when all is undone."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def either(*args: Any, **kwargs: Any) -> Any:
            return (function if self.on else original)(*args, **kwargs)

        self.put(owner, name, either)

    def undo(self) -> None:
        """Put everything back, the last change first."""
        self.on = False
        while self._before:
            owner, name, before = self._before.pop()
            if before is _NOTHING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
