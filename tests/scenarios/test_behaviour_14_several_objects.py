"""Behaviour 14: several objects are selected and moved to one device: all moved, one undo."""

from __future__ import annotations

from places import Place

from devexplorer.core.records import BuildModel, Move, NewTensor, Redo, Undo


def test_all_are_moved_and_one_undo_takes_all_back(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(BuildModel(recipe="lenet"))
    place.do(NewTensor(fill="rand", shape=(4, 20)))
    names = ("mlp", "lenet", "x")
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(Move(targets=names, device="cuda:0"))
        return
    before = {name: place.snapshot(name).bytes_by_device for name in names}
    outcome = place.do(Move(targets=names, device=place.first))
    assert [snapshot.name for snapshot in outcome.changed] == list(names)
    assert all(set(place.snapshot(name).bytes_by_device) == {place.first} for name in names)
    assert place.workspace.history.state().title == f"the move of 3 objects to {place.first}"

    undone = place.do(Undo())
    assert undone.undid is not None
    assert undone.report is not None
    assert undone.report.objects == names
    assert {name: place.snapshot(name).bytes_by_device for name in names} == before
    assert place.workspace.history.state().title == "the new tensor x"
    assert place.workspace.history.state().redo_title == f"the move of 3 objects to {place.first}"
    assert undone.answer.title == "mlp, lenet and x are back on cpu"

    again = place.do(Redo())
    assert again.report is not None
    assert again.report.objects == names
    assert all(set(place.snapshot(name).bytes_by_device) == {place.first} for name in names)
