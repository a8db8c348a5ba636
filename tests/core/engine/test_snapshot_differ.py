"""Events for changed objects: whole snapshots, or the rows that differ."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from devexplorer.core.engine.engine import SMALL, LocalEngine, SnapshotDiffer
from devexplorer.core.records import EditElement, Event, Move, ObjectChanged, Remove, RowsChanged, Undo
from devexplorer.core.session.state import State
from devexplorer.core.workspace.placement import snapshot


class Window:
    """An engine, and the state of a window that listens to it."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.state = State()

    def do(self, command: Move | Undo | Remove | EditElement) -> list[Event]:
        events = self.engine.demand(command)
        for event in events:
            self.state.apply(event)
        return [event for event in events if isinstance(event, ObjectChanged | RowsChanged)]

    def agrees(self) -> bool:
        workspace = self.engine.engine.workspace
        return self.state.objects == {name: workspace.snapshot(name) for name in workspace.names}


def large() -> nn.Module:
    return nn.Sequential(*(nn.Linear(2, 2) for _ in range(SMALL)))


@pytest.fixture
def window() -> Iterator[Window]:
    with LocalEngine("2x Tesla T4") as engine:
        yield Window(engine)
        assert engine.engine.machine is not None
        engine.engine.machine.reset()


def test_after_the_first_time_only_the_rows_that_differ_are_told(window: Window) -> None:
    window.engine.engine.workspace.add("m", large())
    (first,) = window.do(Move(targets=("m:7",), device="vgpu:0"))
    assert isinstance(first, ObjectChanged)
    (second,) = window.do(Move(targets=("m:8",), device="vgpu:0"))
    assert isinstance(second, RowsChanged)
    assert {row.path for row in second.rows} == {"8", "8.weight", "8.bias"}
    assert second.rest.rows == ()
    assert window.agrees()
    (third,) = window.do(Undo())
    assert isinstance(third, RowsChanged)
    assert window.agrees()


def test_a_change_of_most_rows_is_reported_whole(window: Window) -> None:
    window.engine.engine.workspace.add("m", large())
    window.do(Move(targets=("m:7",), device="vgpu:0"))
    (event,) = window.do(Move(targets=("m",), device="vgpu:1"))
    assert isinstance(event, ObjectChanged)
    assert window.agrees()


def test_an_object_of_the_same_name_is_reported_whole_after_its_removal(window: Window) -> None:
    workspace = window.engine.engine.workspace
    workspace.add("m", large())
    window.do(Move(targets=("m:7",), device="vgpu:0"))
    window.do(Remove(names=("m",)))
    (event,) = window.do(Undo())
    assert isinstance(event, ObjectChanged)
    assert window.agrees()


def test_a_small_object_is_reported_whole(window: Window) -> None:
    window.engine.engine.workspace.add("x", torch.zeros(3))
    for value in (1.0, 2.0):
        (event,) = window.do(EditElement(target="x", index=(0,), value=value))
        assert isinstance(event, ObjectChanged)
    assert window.agrees()


def test_rows_that_stand_elsewhere_make_a_whole_snapshot() -> None:
    told, model = SnapshotDiffer(), large()
    told.news(snapshot("m", model), 1)
    assert isinstance(told.news(snapshot("m", model), 2), RowsChanged)
    model[3] = nn.Sequential(nn.Linear(2, 2, bias=False))  # as many rows as before, with other paths
    assert isinstance(told.news(snapshot("m", model), 3), ObjectChanged)


def test_what_changed_beside_the_rows_is_reported_as_well() -> None:
    told, model = SnapshotDiffer(), large()
    told.news(snapshot("m", model), 1)
    event = told.news(snapshot("m", model.eval()), 2)
    assert isinstance(event, RowsChanged)
    assert event.places == ()
    assert event.rest.training is False
