from __future__ import annotations

import msgspec
import pytest
from fakes.look_records import MIB, mlp, model, module_row, tensor, tensor_row
from PySide6.QtCore import QItemSelection, QModelIndex, QPersistentModelIndex, Qt
from pytestqt.modeltest import ModelTester

from devexplorer.core.records import Row
from devexplorer.core.session.arrangement import Options, SearchQuery
from devexplorer.gui.objects.item_model import (
    BADGES_ROLE,
    DEVICES_ROLE,
    TARGET_ROLE,
    ObjectsModel,
    TreeColumn,
    mib_text,
)


def shown(source: ObjectsModel, parent: QModelIndex | None = None) -> list[str]:
    """Every target in the order of the tree; devices that objects are grouped below in brackets."""
    parent = parent or QModelIndex()
    result = []
    for row in range(source.rowCount(parent)):
        index = source.index(row, 0, parent)
        result += [index.data(TARGET_ROLE) or f"[{index.data()}]", *shown(source, index)]
    return result


def group_index(tree: ObjectsModel, device: str) -> QModelIndex:
    """The row of a device that objects are grouped below."""
    return next(index for row in range(tree.rowCount()) if (index := tree.index(row, 0)).data() == device)


def badges_of(tree: ObjectsModel, target: str) -> list[tuple[str, bool]]:
    return [(badge.words, badge.warning) for badge in tree.index_of(target).data(BADGES_ROLE)]


def objects_of(*snapshots):
    return {snapshot.name: snapshot for snapshot in snapshots}


@pytest.fixture
def tree(qtmodeltester: ModelTester) -> ObjectsModel:
    """A model that is checked by Qt's own rules after every change."""
    source = ObjectsModel()
    qtmodeltester.check(source)
    return source


MLP = ["mlp", "mlp:hidden", "mlp:hidden.weight", "mlp:hidden.bias", "mlp:out", "mlp:out.weight", "mlp:out.bias"]


def test_objects_are_a_tree(tree: ObjectsModel):
    tree.update(objects_of(mlp(), tensor("x")))
    assert shown(tree) == [*MLP, "x"]
    weight = tree.index_of("mlp:hidden.weight")
    assert [weight.siblingAtColumn(column).data() for column in TreeColumn] == [
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
    assert ("mlp:hidden.weight", "mlp:hidden.weight") in ranges
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
    assert shown(tree)[2:6] == [
        "mlp:hidden.weight",
        "mlp:hidden.weight.grad",
        "mlp:hidden.bias",
        "mlp:hidden.bias.grad",
    ]
    tree.update(objects_of(mlp()))
    assert shown(tree) == MLP
    assert all(index.isValid() for index in kept.values())


def test_parts_that_changed_places_are_shown_in_their_new_order(tree: ObjectsModel):
    rows = [module_row("", 0, "M", ("cpu",)), tensor_row("a", 1), tensor_row("b", 1), tensor_row("c", 1)]
    tree.update(objects_of(model("m", *rows)))
    tree.update(objects_of(model("m", rows[0], rows[3], rows[1], tensor_row("d", 1))))
    assert shown(tree) == ["m", "m:c", "m:a", "m:d"]


def test_removed_objects_leave_indexes_that_find_nothing(tree: ObjectsModel):
    tree.update(objects_of(mlp(), tensor("x")))
    old = tree.index_of("mlp:hidden")
    tree.update(objects_of(tensor("x")))
    assert tree.data(old) is None
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
    assert badges_of(tree, "m") == [("mixed", True)]
    assert badges_of(tree, "m:a") == []
    assert badges_of(tree, "m:b") == [("tied to a", False)]
    assert badges_of(tree, "m:heads[0]") == [("not registered", True)]
    assert badges_of(tree, "m:l") == [("uninitialised", False)]
    assert "mixed" in tree.index_of("m").data(Qt.ItemDataRole.AccessibleTextRole)
    assert "state_dict" in tree.index_of("m:heads[0]").data(Qt.ItemDataRole.ToolTipRole)
    assert tree.index_of("m:l").siblingAtColumn(TreeColumn.SHAPE).data() == "—"


def test_what_training_and_splitting_left_is_said_of_the_object_and_its_tensors(tree: ObjectsModel):
    rows = (
        module_row("", 0, "M", ("cpu",)),
        tensor_row("a", 1),
        tensor_row("a.exp_avg", 2, kind="state"),
        tensor_row("b", 1, requires_grad=False),
    )
    trained = msgspec.structs.replace(
        model("m", *rows),
        optimizer="Adam, lr 0.001",
        hops=True,
        dispatched="accelerate placed it",
        source="bert.py:make",
    )
    tree.update(objects_of(trained))
    assert badges_of(tree, "m") == [("dispatched", True), ("hops", False), ("Adam", False)]
    assert badges_of(tree, "m:b") == [("frozen", False)]
    assert badges_of(tree, "m:a.exp_avg") == [("state", False)]
    tooltip = tree.index_of("m").data(Qt.ItemDataRole.ToolTipRole)
    assert all(words in tooltip for words in ("Adam, lr 0.001", "accelerate placed it", "made from bert.py:make"))


def test_where_nothing_trains_nothing_is_called_frozen(tree: ObjectsModel):
    tree.update(objects_of(model("m", module_row("", 0, "M", ("cpu",)), tensor_row("a", 1, requires_grad=False))))
    assert badges_of(tree, "m:a") == []


def test_a_new_optimizer_is_announced_although_no_row_is_different(tree: ObjectsModel):
    plain = mlp()
    tree.update(objects_of(plain))
    repaints = []
    tree.repaint_wanted.connect(lambda: repaints.append("again"))
    tree.update(objects_of(msgspec.structs.replace(plain, optimizer="SGD, lr 0.1")))
    assert repaints == ["again"]
    assert badges_of(tree, "mlp") == [("SGD", False)]


def test_small_sizes_never_read_as_nothing():
    assert [mib_text(count) for count in (0, 1, MIB // 100, MIB, 553_433_088)] == [
        "0.00",
        "<0.01",
        "0.01",
        "1.0",
        "527.8",
    ]
    assert mib_text(16_666_400 * 1024) == "16,276", "five digits need no tenths, and have room"


# --- the filter ------------------------------------------------------------------------------------------------------


def look_for(tree: ObjectsModel, text: str) -> None:
    tree.arrange(tree.options._replace(query=SearchQuery.of(text)))


@pytest.fixture
def filled(tree: ObjectsModel) -> ObjectsModel:
    tree.update(objects_of(mlp(), tensor("x", "vgpu:0")))
    return tree


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [*MLP, "x"]),
        ("bias", ["mlp", "mlp:hidden", "mlp:hidden.bias", "mlp:out", "mlp:out.bias"]),
        ("HIDDEN", ["mlp", "mlp:hidden", "mlp:hidden.weight", "mlp:hidden.bias"]),
        ("vgpu float32", ["x"]),
        ("linear cpu out", ["mlp", "mlp:out", "mlp:out.weight", "mlp:out.bias"]),
        ("device:vgpu:0", ["x"]),
        ("type:linear name:out", ["mlp", "mlp:out", "mlp:out.weight", "mlp:out.bias"]),
        ("name:linear", []),
        ("dtype:float32 name:x", ["x"]),
        ("kind:tensor", ["x"]),
        ("hidden.b", ["mlp", "mlp:hidden", "mlp:hidden.bias"]),
        ("device: x", ["x"]),
        ("nothing-like-this", []),
    ],
)
def test_a_filter_shows_matches_with_what_they_are_in_and_what_is_in_them(
    filled: ObjectsModel, text: str, found: list[str]
):
    look_for(filled, text)
    assert shown(filled) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("frozen", ["m", "m:b"]),
        ("trainable", ["m", "m:a", "m:tie"]),
        ("tied", ["m", "m:tie"]),
        ("uninitialised", ["m", "m:l"]),
        ("mixed", ["m", "m:a", "m:b", "m:tie", "m:mean", "m:l"]),
        ("kind:buffer", ["m", "m:mean"]),
    ],
)
def test_a_filter_knows_words_for_what_is_special_about_a_tensor(tree: ObjectsModel, text: str, found: list[str]):
    rows = (
        module_row("", 0, "M", ("cpu", "cuda:0")),
        tensor_row("a", 1),
        tensor_row("b", 1, requires_grad=False),
        tensor_row("tie", 1, tied_to="a"),
        tensor_row("mean", 1, "cuda:0", kind="buffer"),
        Row(path="l", name="l", kind="parameter", type="UninitializedParameter", depth=1, initialised=False),
    )
    tree.update(objects_of(model("m", *rows)))
    look_for(tree, text)
    assert shown(tree) == found


def test_a_filter_follows_the_objects(filled: ObjectsModel):
    look_for(filled, "cuda:1")
    assert shown(filled) == []
    filled.update(objects_of(mlp(device="cuda:1"), tensor("x")))
    assert shown(filled) == MLP
    filled.update(objects_of(mlp(device="cuda:1", gradients=True), tensor("x"), tensor("y", "cuda:1")))
    assert shown(filled)[-1] == "y"
    assert "mlp:out.bias.grad" in shown(filled)
    filled.update(objects_of(tensor("x"), tensor("y", "cuda:1")))
    assert shown(filled) == ["y"]


def test_what_a_filter_hides_and_shows_again_keeps_its_persistent_indexes_while_it_is_shown(filled: ObjectsModel):
    kept = QPersistentModelIndex(filled.index_of("mlp:out.bias"))
    hidden = QPersistentModelIndex(filled.index_of("mlp:out.weight"))
    look_for(filled, "bias")
    assert kept.data(TARGET_ROLE) == "mlp:out.bias"
    assert not hidden.isValid()
    look_for(filled, "")
    assert kept.data(TARGET_ROLE) == "mlp:out.bias"


# --- order, groups, kinds --------------------------------------------------------------------------------------------


def of_sizes(name: str, *sizes: tuple[str, int]):
    rows = [tensor_row(part, 1, "cpu", mib) for part, mib in sizes]
    return model(name, module_row("", 0, "M", ("cpu",), sum(mib for _, mib in sizes)), *rows)


def test_rows_are_sorted_by_bytes_or_by_name_in_natural_order_below_their_parents(tree: ObjectsModel):
    tree.update(objects_of(of_sizes("m", ("layer10", 3), ("layer9", 7), ("layer2", 5)), tensor("a", mib=9)))
    tree.arrange(Options(sorted_by="bytes", descending=True))
    assert shown(tree) == ["m", "m:layer9", "m:layer2", "m:layer10", "a"]
    tree.arrange(Options(sorted_by="bytes"))
    assert shown(tree) == ["a", "m", "m:layer10", "m:layer2", "m:layer9"]
    tree.arrange(Options(sorted_by="name"))
    assert shown(tree) == ["a", "m", "m:layer2", "m:layer9", "m:layer10"]
    tree.arrange(Options())
    assert shown(tree) == ["m", "m:layer10", "m:layer9", "m:layer2", "a"]


def test_the_order_follows_the_objects(tree: ObjectsModel):
    tree.arrange(Options(sorted_by="bytes", descending=True))
    tree.update(objects_of(of_sizes("m", ("a", 1), ("b", 2)), tensor("x", mib=9)))
    assert shown(tree) == ["x", "m", "m:b", "m:a"]
    tree.update(objects_of(of_sizes("m", ("a", 8), ("b", 4)), tensor("x", mib=9)))
    assert shown(tree) == ["m", "m:a", "m:b", "x"]


SPLIT = (
    module_row("", 0, "M", ("cpu", "cuda:0"), 7),
    tensor_row("scale", 1, "cpu", 1),
    module_row("near", 1, "Linear", ("cpu",), 2),
    tensor_row("near.weight", 2, "cpu", 2),
    module_row("act", 1, "ReLU", (), 0),
    module_row("far", 1, "Block", ("cuda:0",), 4),
    tensor_row("far.weight", 2, "cuda:0", 4),
    module_row("far.act", 2, "ReLU", (), 0),
)


def test_grouped_by_device_a_mixed_model_is_below_each_with_only_its_parts_there(tree: ObjectsModel):
    tree.arrange(Options(grouped=True))
    tree.update(
        objects_of(model("m", *SPLIT), tensor("x", "cuda:0", 3), model("silent", module_row("", 0, "ReLU", (), 0)))
    )
    assert shown(tree) == [
        "[cpu]", "m", "m:scale", "m:near", "m:near.weight",
        "[cuda:0]", "m", "m:far", "m:far.weight", "m:far.act", "x",
        "[no tensors]", "silent",
    ]  # fmt: skip
    far = tree.index(0, 0, group_index(tree, "cuda:0"))
    assert far.siblingAtColumn(TreeColumn.MIB).data() == "4.0", "of a mixed model what is there"
    assert (
        far.siblingAtColumn(TreeColumn.MIB).data(Qt.ItemDataRole.ToolTipRole)
        == f"{4 * MIB:,} bytes on cuda:0, {7 * MIB:,} in all"
    )
    assert group_index(tree, "cuda:0").siblingAtColumn(TreeColumn.MIB).data() == "7.0"
    assert group_index(tree, "cuda:0").data(BADGES_ROLE)[0].words == "2 objects"


def selected(tree: ObjectsModel, *indexes: QModelIndex) -> tuple[str, ...]:
    chosen = QItemSelection()
    for index in indexes:
        chosen.select(index, index.siblingAtColumn(TreeColumn.MIB))
    return tree.targets(chosen)


def test_what_is_selected_below_a_device_means_what_is_there(tree: ObjectsModel):
    tree.arrange(Options(grouped=True))
    tree.update(objects_of(model("m", *SPLIT), tensor("x", "cuda:0", 3)))
    cuda = group_index(tree, "cuda:0")
    assert selected(tree, tree.index(0, 0, cuda)) == ("m:far",)
    assert selected(tree, cuda) == ("m:far", "x")
    assert selected(tree, group_index(tree, "cpu")) == ("m:near",), "a move cannot tell scale from the rest of m"
    assert selected(tree, tree.index(0, 0, tree.index(0, 0, group_index(tree, "cpu")))) == ("m:scale",)


def test_groups_follow_a_move_and_take_the_persistent_indexes_along(tree: ObjectsModel):
    tree.arrange(Options(grouped=True))
    tree.update(objects_of(mlp(), tensor("x")))
    kept = QPersistentModelIndex(tree.index_of("mlp:hidden"))
    tree.update(objects_of(mlp(device="cuda:1"), tensor("x")))
    assert shown(tree) == ["[cpu]", "x", "[cuda:1]", *MLP]
    assert kept.data(TARGET_ROLE) == "mlp:hidden"
    assert kept.parent().parent().data() == "cuda:1"
    tree.arrange(Options())
    assert kept.data(TARGET_ROLE) == "mlp:hidden"
    assert shown(tree) == [*MLP, "x"]


def test_a_filter_works_inside_groups(tree: ObjectsModel):
    tree.update(objects_of(model("m", *SPLIT), tensor("x", "cuda:0", 3)))
    tree.arrange(Options(SearchQuery.of("weight"), grouped=True))
    assert shown(tree) == ["[cpu]", "m", "m:near", "m:near.weight", "[cuda:0]", "m", "m:far", "m:far.weight"]
    assert [index.data() for index in tree.opened()] == ["cpu", "cuda:0", "m", "near", "m", "far"]


def test_gradients_and_optimizer_state_can_be_left_out(tree: ObjectsModel):
    rows = (module_row("", 0, "M", ("cpu",)), tensor_row("a", 1), tensor_row("a.grad", 2, kind="gradient"))
    tree.update(objects_of(model("m", *rows, tensor_row("a.exp_avg", 2, kind="state"))))
    tree.arrange(Options(training_parts=False))
    assert shown(tree) == ["m", "m:a"]
    assert not tree.hasChildren(tree.index_of("m:a"))
    look_for(tree, "kind:gradient")
    assert shown(tree) == []
    tree.arrange(Options())
    assert shown(tree) == ["m", "m:a", "m:a.grad", "m:a.exp_avg"]


def test_what_is_in_another_selected_part_is_no_target_of_its_own(filled: ObjectsModel):
    chosen = [filled.index_of(target) for target in ("x", "mlp:hidden.bias", "mlp:out.weight", "mlp:hidden")]
    assert selected(filled, *chosen) == ("mlp:hidden", "mlp:out.weight", "x")


def test_a_selection_is_found_again_in_another_arrangement(filled: ObjectsModel):
    chosen = QItemSelection(filled.index_of("mlp:hidden"), filled.index_of("mlp:out").siblingAtColumn(TreeColumn.MIB))
    keys = filled.keys(chosen)
    filled.arrange(Options(sorted_by="name", descending=True, grouped=True))
    assert set(filled.targets(filled.selection(keys))) == {"mlp:hidden", "mlp:out"}
    look_for(filled, "hidden")
    assert filled.targets(filled.selection(keys)) == ("mlp:hidden",)


def big(layers: int):
    rows = [module_row("", 0, "Big", ("cpu",))]
    for layer in range(layers):
        rows.append(module_row(f"layers.{layer}", 1, "Linear", ("cpu",)))
        rows += [tensor_row(f"layers.{layer}.{part}", 2) for part in ("weight", "bias", "scale", "shift", "mean")]
    return model("big", *rows)


def test_a_large_model_is_not_looked_through_before_it_is_opened():
    tree = ObjectsModel()
    asked = []

    class Counted(tuple):
        def __getitem__(self, at):
            asked.append(at)
            return tuple.__getitem__(self, at)

    whole = big(1_000)
    tree.update(objects_of(msgspec.structs.replace(whole, rows=Counted(whole.rows))))
    root = tree.index(0, 0)
    assert tree.rowCount(root) == 1_000
    assert tree.index(999, 0, root).data() == "999"
    assert asked == [5_995], "the rows of what is on screen, and no others"


def test_a_move_of_a_large_model_asks_for_one_repaint_and_announces_one_row():
    tree = ObjectsModel()
    whole = big(1_000)
    tree.update(objects_of(whole))
    told, repaints = [], []
    tree.dataChanged.connect(lambda first, last: told.append(first.data(TARGET_ROLE)))
    tree.repaint_wanted.connect(lambda: repaints.append("again"))
    tree.layoutChanged.connect(lambda: told.append("everything anew"))
    tree.update(
        objects_of(
            msgspec.structs.replace(
                whole, rows=tuple(msgspec.structs.replace(r, devices=("cuda:0",)) for r in whole.rows)
            )
        )
    )
    assert (told, repaints) == (["big"], ["again"])
    assert tree.index_of("big:layers.500.bias").data(DEVICES_ROLE) == ("cuda:0",)
