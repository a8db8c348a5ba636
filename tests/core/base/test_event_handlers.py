"""Methods that handle events by their type."""

from __future__ import annotations

from devexplorer.core.base import EventHandlers, handles


class Counting(EventHandlers):
    def __init__(self) -> None:
        self.handled: list[object] = []

    @handles(int, float)
    def _number(self, event: float) -> str:
        self.handled.append(event)
        return "number"


class AlsoText(Counting):
    @handles(str)
    def _text(self, event: str) -> str:
        self.handled.append(event)
        return "text"

    @handles(float)
    def _float(self, event: float) -> str:
        return "float"


def test_an_event_goes_to_the_method_of_its_type_and_to_no_other() -> None:
    counting = Counting()
    assert [counting.handle(event) for event in (1, 2.0, "3", True)] == ["number", "number", None, None]
    assert counting.handled == [1, 2.0]


def test_a_subclass_adds_and_replaces_and_leaves_its_base_alone() -> None:
    both = AlsoText()
    assert [both.handle(event) for event in (1, 2.0, "3")] == ["number", "float", "text"]
    assert both.handled == [1, "3"]
    assert Counting().handle("3") is None
