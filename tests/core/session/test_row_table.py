"""The rows of an object as a tree and as columns, and the low cost of changing a few of them."""

from __future__ import annotations

import msgspec
import pytest

from devexplorer.core.records import ObjectChanged, ObjectRemoved, ObjectSnapshot, Row, RowsChanged
from devexplorer.core.session.row_table import RowTable, RowTables, Shape
from devexplorer.core.session.state import Change, State


def row(path: str, depth: int, kind: str = "parameter", device: str = "cpu", **more: object) -> Row:
    fields = {
        "path": path,
        "name": path.rpartition(".")[2],
        "kind": kind,
        "type": "T",
        "depth": depth,
        "devices": (device,),
        "bytes": 4,
    }
    return Row(**(fields | more))


def snapshot(*rows: Row, name: str = "m") -> ObjectSnapshot:
    return ObjectSnapshot(name=name, kind="model", type="M", rows=rows, bytes_by_device={}, tensors_by_device={})


ROWS = (
    row("", 0, "module"),
    row("a", 1, "module"),
    row("a.w", 2),
    row("a.w.grad", 3, "gradient"),
    row("b", 1, "module"),
    row("b.w", 2, tied_to="a.w"),
    row("c", 1, "buffer", registered=False),
)


def test_parents_and_ends_follow_the_depths():
    shape = Shape(ROWS)
    assert shape.parents == [-1, 0, 1, 2, 0, 4, 0]
    assert shape.ends == [7, 4, 4, 4, 6, 6, 7]
    assert shape.children(0) == [1, 4, 6]
    assert shape.children(3) == []


@pytest.mark.parametrize(
    ("depths", "parents", "ends"),
    [
        ([0, 3, 1, 2], [-1, 0, 0, 2], [4, 2, 4, 4]),  # a parent is missing: below the nearest shallower one
        ([0, 2, 2, 0, 1], [-1, 0, 0, 0, 0], [5, 2, 3, 4, 5]),  # there is one object in a snapshot
        ([0], [-1], [1]),
    ],
)
def test_rows_without_a_parent_hang_below_the_nearest_shallower_one(
    depths: list[int], parents: list[int], ends: list[int]
):
    shape = Shape([row(str(at), depth) for at, depth in enumerate(depths)])
    assert (shape.parents, shape.ends) == (parents, ends)


def test_masks_reach_up_and_down():
    outline = RowTable(ROWS)
    gradient = outline.kinds("gradient")
    assert outline.shape.around(gradient).tolist() == [True, True, True, False, False, False, False]
    assert outline.shape.below(outline.column("name").where(lambda name: name == "a")).tolist() == [
        False,
        True,
        True,
        True,
        *[False] * 3,
    ]


def test_each_tensor_counts_once_and_only_where_it_is_registered():
    outline = RowTable(ROWS)
    assert outline.tensors([0]).tolist() == [2, 3]
    assert outline.tensors([4]).tolist() == [5], "b alone has it under its other name"
    assert outline.tensors([4, 1]).tolist() == [2, 3]
    alone = RowTable((row("", 0, "tensor", registered=True),))
    assert alone.tensors([0]).tolist() == [0]


def test_a_tensor_is_held_by_the_nearest_module():
    outline = RowTable(ROWS)
    assert [outline.holder(at) for at in range(len(ROWS))] == [0, 1, 1, 1, 4, 4, 0]


def test_the_columns_that_sums_need_are_read_one_by_one():
    outline = RowTable(ROWS)
    assert not outline.is_ready
    steps = 0
    while outline.step():
        steps += 1
    assert steps == 7
    assert outline.is_ready


def changed(places: tuple[int, ...], device: str, rows: tuple[Row, ...] = ROWS) -> RowsChanged:
    new = tuple(msgspec.structs.replace(rows[at], devices=(device,), bytes=8) for at in places)
    return RowsChanged(name="m", places=places, rows=new, rest=snapshot())


def test_a_few_changed_rows_change_those_places_of_the_columns_and_nothing_else():
    state = State()
    state.apply(ObjectChanged(snapshot=snapshot(*ROWS)))
    before = state.row_tables.of(state.objects["m"])
    while before.step():
        pass
    assert state.apply(changed((2, 5), "cuda:0")) == Change.OBJECTS
    after = state.row_tables.of(state.objects["m"])
    assert after.shape is before.shape
    assert after.changes_since(before) == (2, 5)
    assert after.is_ready
    assert after.column("devices").where(lambda devices: devices == ("cuda:0",)).nonzero()[0].tolist() == [2, 5]
    assert after.bytes.tolist() == [4, 4, 8, 4, 4, 8, 4]
    assert before.bytes.tolist() == [4] * 7, "who still shows the snapshot before keeps its sums"


def test_what_changed_over_several_events_is_found_by_looking():
    state = State()
    state.apply(ObjectChanged(snapshot=snapshot(*ROWS)))
    before = state.row_tables.of(state.objects["m"])
    state.apply(changed((2,), "cuda:0"))
    state.apply(changed((5,), "cuda:1", state.objects["m"].rows))
    assert state.row_tables.of(state.objects["m"]).changes_since(before) == [2, 5]


def test_other_paths_are_another_shape():
    row_tables = RowTables()
    before = row_tables.of(snapshot(*ROWS))
    assert row_tables.of(snapshot(*ROWS[:-1])).changes_since(before) is None


def test_the_same_paths_in_a_new_snapshot_keep_the_shape():
    row_tables = RowTables()
    before = row_tables.of(snapshot(*ROWS))
    after = row_tables.of(snapshot(*(msgspec.structs.replace(one, devices=("cuda:0",)) for one in ROWS)))
    assert after.shape is before.shape
    assert after.changes_since(before) == list(range(len(ROWS)))


@pytest.mark.parametrize("places", [(7,), (-1,), (0, 99)])
def test_rows_that_are_not_there_cannot_change(places: tuple[int, ...]):
    state = State()
    state.apply(ObjectChanged(snapshot=snapshot(*ROWS)))
    event = RowsChanged(name="m", places=places, rows=tuple(ROWS[0] for _ in places), rest=snapshot())
    assert state.apply(event) == Change.NOTHING
    assert state.objects["m"].rows == ROWS


def test_an_object_that_is_gone_leaves_no_outline():
    state = State()
    state.apply(ObjectChanged(snapshot=snapshot(*ROWS)))
    first = state.row_tables.of(state.objects["m"])
    state.apply(ObjectRemoved(name="m"))
    state.apply(ObjectChanged(snapshot=snapshot(*ROWS)))
    assert state.row_tables.of(state.objects["m"]).shape is not first.shape
