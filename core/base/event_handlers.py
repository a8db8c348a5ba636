"""Methods that handle events by their type: one look-up for each event instead of a row of patterns. Any thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

M = TypeVar("M", bound=Callable[..., Any])


def handles(*types: type) -> Callable[[M], M]:
    """Marks a method of an `EventHandlers`: it gets the events of these types."""

    def mark(method: M) -> M:
        vars(method)["handled_types"] = types
        return method

    return mark


class EventHandlers:
    """`handle` gives an event to the method that is marked with its type; the other events cost one look-up."""

    _handlers: ClassVar[Mapping[type, Callable[..., Any]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {kind: method for method in vars(cls).values() for kind in getattr(method, "handled_types", ())}
        cls._handlers = {**cls._handlers, **own}

    @classmethod
    def handled_types(cls) -> tuple[type, ...]:
        """Those for which there is a method."""
        return tuple(cls._handlers)

    def handle(self, event: object) -> Any:
        """What the method for this event returns; None where there is no method."""
        method = self._handlers.get(type(event))
        return None if method is None else method(self, event)
