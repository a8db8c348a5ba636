from __future__ import annotations

import msgspec
import pytest
from fakes.look_records import MIB, mlp, model, module_row, tensor, tensor_row
from PySide6.QtCore import QModelIndex, QPersistentModelIndex, Qt
from pytestqt.modeltest import ModelTester

from devexplorer.core.records.objects import Row
from devexplorer.gui.item_models.dragging import decode
from devexplorer.gui.item_models.filter import ObjectsFilter
from devexplorer.gui.item_models.objects import (
    BADGES_ROLE,
    DEVICES_ROLE,
    TARGET_ROLE,
    Badge,
    Column,
    ObjectsModel,
    mib_text,
)


def shown(source: ObjectsModel | ObjectsFilter, parent: QModelIndex | None = None) -> list[str]:
    """Every target in the order of the tree."""
    parent = parent or QModelIndex()
    result = []
    for row in range(source.rowCount(parent)):
        index = source.index(row, 0, parent)
        result += [index.data(TARGET_ROLE), *shown(source, index)]
    return result


def objects_of(*snapshots):
    return {snapshot.name: snapshot for snapshot in snapshots}


@pytest.fixture
def tree(qtmodeltester: ModelTester) -> ObjectsModel:
    """A model that is checked by Qt's own rules after every change."""
    source = ObjectsModel()
    qtmodeltester.check(source)
    return source


MLP = ["mlp", "mlp:hidden", "mlp:hidden.weight", "mlp:hidden.bias", "mlp:out", "mlp:out.weight", "mlp:out.bias"]


def test_objects_stand_as_a_tree(tree: ObjectsModel):
    tree.update(objects_of(mlp(), tensor("x")))
    assert shown(tree) == [*MLP, "x"]
    weight = tree.index_of("mlp:hidden.weight")
    assert [weight.siblingAtColumn(column).data() for column in Column] == [
        "weight", "Parameter", "2×256×1024", "float32", "cpu", "2.0",
    ]  # fmt: skip
    assert weight.parent().data() == "hidden"
    assert not tree.index_of("mlp:nowhere").isValid()


def test_the_model_keeps_qts_rules_through_every_kind_of_change(tree: ObjectsModel, qtmodeltester: ModelTester):
    steps = [
        objects_of(mlp()),
        objects_of(mlp(), tensor("x"), tensor("y")),
        objects_of(mlp(gradients=True), tensor("y")),
        objects_of(mlp(device="vgpu:0"), tensor("z"), tensor("y", "vgpu:0")),
        objects_of(tensor("y")),
        {},
    ]
    for step in steps:
        tree.update(step)
        qtmodeltester.check(tree)
        assert [name for name in shown(tree) if ":" not in name] != [] or step == {}


def test_a_move_changes_cells_and_nothing_else(tree: ObjectsModel):
    tree.update(objects_of(mlp(), tensor("x")))
    resets, ranges = [], []
    tree.modelReset.connect(lambda: resets.append("reset"))
    tree.rowsInserted.connect(lambda *_: resets.append("inserted"))
    tree.rowsRemoved.connect(lambda *_: resets.append("removed"))
    tree.dataChanged.connect(lambda first, last: ranges.append((first.data(TARGET_ROLE), last.data(TARGET_ROLE))))
    x = tensor("x")
    tree.update(objects_of(mlp(device="cuda:1"), x))
    assert resets == []
    assert ("mlp", "mlp") in ranges
    assert ("mlp:hidden.weight", "mlp:hidden.bias") in ranges
    assert not any("x" in pair for pair in ranges)
    assert tree.index_of("mlp:out.bias").data(DEVICES_ROLE) == ("cuda:1",)


def test_an_equal_snapshot_announces_nothing(tree: ObjectsModel):
    tree.update(objects_of(mlp()))
    ranges = []
    tree.dataChanged.connect(lambda *_: ranges.append("changed"))
    tree.update(objects_of(mlp()))
    assert ranges == []


def test_gradients_that_appear_leave_every_other_row_where_it_was(tree: ObjectsModel):
    tree.update(objects_of(mlp()))
    kept = {target: QPersistentModelIndex(tree.index_of(target)) for target in MLP}
    tree.update(objects_of(mlp(gradients=True)))
    assert all(index.isValid() and index.data(TARGET_ROLE) == target for target, index in kept.items())
    assert shown(tree)[2:6] == ["mlp:hidden.weight", "mlp:hidden.weight.grad", "mlp:hidden.bias", "mlp:hidden.bias.grad"]
    tree.update(objects_of(mlp()))
    assert shown(tree) == MLP
    assert all(index.isValid() for index in kept.values())


def test_parts_that_changed_places_are_shown_in_their_new_order(tree: ObjectsModel):
    rows = [module_row("", 0, "M", ("cpu",)), tensor_row("a", 1), tensor_row("b", 1), tensor_row("c", 1)]
    tree.update(objects_of(model("m", *rows)))
    tree.update(objects_of(model("m", rows[0], rows[3], rows[1], tensor_row("d", 1))))
    assert shown(tree) == ["m", "m:c", "m:a", "m:d"]


def test_a_path_that_comes_twice_is_shown_twice(tree: ObjectsModel):
    rows = [module_row("", 0, "M", ("cpu",)), tensor_row("a", 1), tensor_row("a", 1)]
    tree.update(objects_of(model("m", *rows)))
    tree.update(objects_of(model("m", rows[0], rows[1])))
    assert shown(tree) == ["m", "m:a"]


def test_removed_objects_leave_indexes_that_find_nothing(tree: ObjectsModel):
    tree.update(objects_of(mlp(), tensor("x")))
    old = tree.index_of("mlp:hidden")
    tree.update(objects_of(tensor("x")))
    assert tree.data(old) is None
    assert tree.flags(old) == Qt.ItemFlag.NoItemFlags
    assert tree.rowCount(old) == 0
    assert not tree.parent(old).isValid()


def test_badges_say_what_is_out_of_the_ordinary(tree: ObjectsModel):
    lazy = Row(path="l", name="l", kind="parameter", type="UninitializedParameter", depth=1, initialised=False)
    rows = (
        module_row("", 0, "M", ("cpu", "cuda:0")),
        tensor_row("a", 1),
        tensor_row("b", 1, tied_to="a"),
        module_row("heads[0]", 1, "Linear", ("cpu",), registered=False),
        lazy,
    )
    tree.update(objects_of(model("m", *rows)))
    assert tree.index_of("m").data(BADGES_ROLE) == (Badge("mixed", True),)
    assert tree.index_of("m:a").data(BADGES_ROLE) == ()
    assert tree.index_of("m:b").data(BADGES_ROLE) == (Badge("tied to a", False),)
    assert tree.index_of("m:heads[0]").data(BADGES_ROLE) == (Badge("not registered", True),)
    assert tree.index_of("m:l").data(BADGES_ROLE) == (Badge("uninitialised", False),)
    assert "mixed" in tree.index_of("m").data(Qt.ItemDataRole.AccessibleTextRole)
    assert "state_dict" in tree.index_of("m:heads[0]").data(Qt.ItemDataRole.ToolTipRole)
    assert tree.index_of("m:l").siblingAtColumn(Column.SHAPE).data() == "—"


def test_small_sizes_never_read_as_nothing():
    assert [mib_text(count) for count in (0, 1, MIB // 100, MIB, 553_433_088)] == ["0.00", "<0.01", "0.01", "1.0", "527.8"]


def test_dragging_carries_the_targets(tree: ObjectsModel):
    tree.update(objects_of(mlp(), tensor("x")))
    indexes = [tree.index_of("mlp:hidden"), tree.index_of("mlp:hidden").siblingAtColumn(1), tree.index_of("x")]
    assert decode(tree.mimeData(indexes)) == ("mlp:hidden", "x")
    assert tree.flags(indexes[0]) & Qt.ItemFlag.ItemIsDragEnabled


def test_names_with_tags_are_no_markup_in_tooltips(tree: ObjectsModel):
    tree.update(objects_of(model("m", module_row("", 0, "M", ("cpu",)), module_row("<b>x</b>", 1, "Linear", ("cpu",)))))
    tooltip = tree.index_of("m:<b>x</b>").data(Qt.ItemDataRole.ToolTipRole)
    assert "&lt;b&gt;x" in tooltip
    assert "<b>" not in tooltip


def test_a_name_with_a_space_is_one_name(tree: ObjectsModel):
    tree.update(objects_of(model("m", module_row("", 0, "M", ("cpu",)), module_row("block 0", 1, "Linear", ("cpu",)))))
    assert tree.index_of("m:block 0").data() == "block 0"


# --- the filter ------------------------------------------------------------------------------------------------------


@pytest.fixture
def filtered(tree: ObjectsModel, qtmodeltester: ModelTester) -> ObjectsFilter:
    proxy = ObjectsFilter(tree)
    tree.update(objects_of(mlp(), tensor("x", "vgpu:0")))
    qtmodeltester.check(proxy)
    return proxy


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [*MLP, "x"]),
        ("bias", ["mlp", "mlp:hidden", "mlp:hidden.bias", "mlp:out", "mlp:out.bias"]),
        ("HIDDEN", ["mlp", "mlp:hidden", "mlp:hidden.weight", "mlp:hidden.bias"]),
        ("vgpu float32", ["x"]),
        ("linear cpu out", ["mlp", "mlp:out", "mlp:out.weight", "mlp:out.bias"]),
        ("nothing-like-this", []),
    ],
)
def test_a_filter_shows_matches_with_what_they_are_in_and_what_is_in_them(filtered: ObjectsFilter, text: str, found: list[str]):
    filtered.set_text(text)
    assert shown(filtered) == found


def test_the_branches_to_the_matches_are_opened_and_the_matches_are_not(filtered: ObjectsFilter):
    filtered.set_text("hidden")
    assert [index.data(TARGET_ROLE) for index in filtered.opened()] == ["mlp"]


def test_a_filter_follows_the_objects(filtered: ObjectsFilter, tree: ObjectsModel):
    filtered.set_text("cuda:1")
    assert shown(filtered) == []
    tree.update(objects_of(mlp(device="cuda:1"), tensor("x")))
    filtered.refresh()
    assert shown(filtered) == MLP


def test_fifty_thousand_rows_are_taken_over_and_filtered():
    tree = ObjectsModel()  # not watched by Qt's tester, which walks through all rows at every change
    rows = [module_row("", 0, "Big", ("cpu",))]
    for layer in range(10_000):
        rows.append(module_row(f"layers.{layer}", 1, "Linear", ("cpu",)))
        rows += [tensor_row(f"layers.{layer}.{part}", 2) for part in ("weight", "bias", "scale", "shift")]
    big = model("big", *rows)
    tree.update(objects_of(big))
    moved = msgspec.structs.replace(big, rows=(*big.rows[:-1], msgspec.structs.replace(big.rows[-1], devices=("vgpu:0",))))
    changed = []
    tree.dataChanged.connect(lambda first, last: changed.append(first.data(TARGET_ROLE)))
    tree.update(objects_of(moved))
    assert changed == ["big:layers.9999.shift"]
    proxy = ObjectsFilter(tree)
    proxy.set_text("vgpu:0")
    assert shown(proxy) == ["big", "big:layers.9999", "big:layers.9999.shift"]
