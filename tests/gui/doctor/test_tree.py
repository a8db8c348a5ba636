"""Findings in the tree of objects: their rows, badges, double-click, targets of commands."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from fakes.diagnoses import FILE, diagnosis, finding, hidden_sync, note, some, tell
from fakes.host import hosted
from fakes.look_records import CPU, VGPU, mlp, model, module_row, show, state_with, tensor_row
from PySide6.QtCore import QModelIndex, Qt
from pytestqt.modeltest import ModelTester
from pytestqt.qtbot import QtBot

from devexplorer.core.records import Diagnosis, EngineLost, ObjectRemoved, ObjectSnapshot, RowsChanged
from devexplorer.core.session.arrangement import Options, SearchQuery
from devexplorer.core.session.findings import ObjectFindings, holder, told
from devexplorer.core.session.row_table import RowTable
from devexplorer.core.session.state import State
from devexplorer.gui.objects.item_model import BADGES_ROLE, FINDING_ROLE, TARGET_ROLE, ObjectsModel, TreeColumn
from devexplorer.gui.objects.panel import ObjectsPanel

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def tree(qtmodeltester: ModelTester) -> ObjectsModel:
    """A model that is checked by Qt's own rules after every change."""
    source = ObjectsModel()
    qtmodeltester.check(source)
    return source


def shown(source: ObjectsModel, parent: QModelIndex | None = None) -> list[str]:
    """Names in the order of the tree, indented."""
    parent = parent or QModelIndex()
    found = []
    for row in range(source.rowCount(parent)):
        index = source.index(row, 0, parent)
        found += [str(index.data()), *(f"  {line}" for line in shown(source, index))]
    return found


def fill(source: ObjectsModel, snapshot: ObjectSnapshot, found: Diagnosis | None) -> None:
    source.update({snapshot.name: snapshot}, None, {} if found is None else {snapshot.name: found})


def words(source: ObjectsModel, target: str) -> list[str]:
    return [badge.words for badge in source.index_of(target).data(BADGES_ROLE)]


SCALE = "self.scale is a plain attribute: it stayed on cpu."
MIXED = "linear got operands on two devices."
SYNC = ".item() waits until vgpu:0 has done all its work."
MLP = ["mlp", "  hidden", "    weight", "    bias", "  out", "    weight", "    bias"]


def test_findings_are_below_the_module_that_they_are_about(tree: ObjectsModel) -> None:
    fill(tree, mlp(), some())
    assert shown(tree) == [
        "mlp", f"  {MIXED}", "  mask is not saved.",
        "  hidden", f"    {SCALE}", "    weight", "    bias",
        "  out", f"    {SYNC}", "    weight", "    bias",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "row"),
    [
        ("hidden", "hidden"),
        ("hidden.weight", "hidden.weight"),
        ("hidden.scale", "hidden"),
        ("layers[1].weight", "layers[1].weight"),
        ("layers[1].scale", "layers[1]"),
        ("layers[7]", ""),
        ("heads['a'].scale", ""),
        ("", ""),
        ("hidden_of_another_name", ""),
    ],
)
def test_a_finding_is_about_its_own_row_or_the_nearest_one_around_it(path: str, row: str) -> None:
    listed = module_row("layers[1]", 1, "Linear", ("cpu",), registered=False)
    outline = RowTable((*mlp().rows, listed, tensor_row("layers[1].weight", 2)))
    assert outline.shape.paths[holder(outline, path)] == row


def test_badges_count_what_was_found_in_a_row_and_below_it(tree: ObjectsModel) -> None:
    fill(tree, mlp(), some())
    assert words(tree, "mlp") == ["2 errors, 1 warning, 1 note"]
    assert words(tree, "mlp:hidden") == ["1 error"]
    assert words(tree, "mlp:out") == ["1 warning"]
    assert words(tree, "mlp:out.weight") == []
    top, out = tree.index_of("mlp").data(BADGES_ROLE)[0], tree.index_of("mlp:out").data(BADGES_ROLE)[0]
    assert (top.error, top.warning) == (True, False)
    assert (out.error, out.warning) == (False, True)
    assert SYNC in tree.index_of("mlp:out").data(Qt.ItemDataRole.ToolTipRole)
    assert "1 error" in tree.index_of("mlp:hidden").data(Qt.ItemDataRole.AccessibleTextRole)


def test_a_tooltip_tells_the_first_findings_and_counts_the_others() -> None:
    many = [finding(f"x{number}", message=f"Finding {number}.") for number in range(200)]
    lines = told(many).split("\n")
    assert lines == ["error: Finding 0. Make it a buffer.", "error: Finding 1. Make it a buffer.",
                     "error: Finding 2. Make it a buffer.",
                     "and 197 more"]  # fmt: skip
    assert told(many[:1]) == "error: Finding 0. Make it a buffer."


def test_a_row_that_is_a_finding_says_what_and_where(tree: ObjectsModel) -> None:
    fill(tree, mlp(), some())
    index = tree.finding_index("mlp", 0)
    assert index.parent().data(TARGET_ROLE) == "mlp:hidden"
    assert index.data(FINDING_ROLE) == finding("hidden.scale", patch=index.data(FINDING_ROLE).patch)
    assert index.data(Qt.ItemDataRole.ToolTipRole) == f"{SCALE} Make it a buffer.\nnet.py:6"
    assert index.data(Qt.ItemDataRole.AccessibleTextRole) == f"error, {SCALE}"
    assert [index.siblingAtColumn(column).data() for column in TreeColumn if column != TreeColumn.NAME] == [""] * 5
    assert tree.index_of("mlp:hidden").data(FINDING_ROLE) is None
    assert not tree.finding_index("mlp", 99).isValid()
    assert not tree.finding_index("nothing", 0).isValid()


def test_commands_for_a_finding_go_to_what_it_is_about(tree: ObjectsModel) -> None:
    fill(tree, mlp(), some())
    finding_row, weight = tree.finding_index("mlp", 0), tree.index_of("mlp:hidden.weight")
    assert finding_row.data(TARGET_ROLE) == "mlp:hidden"
    both = tree.selection(tree.keys(tree.selection([])))
    both.select(finding_row, finding_row)
    assert tree.targets(both) == ("mlp:hidden",)
    both.select(weight, weight)
    assert tree.targets(both) == ("mlp:hidden",)  # which the weight is in


def test_the_tree_keeps_qts_rules_whatever_the_doctor_says(tree: ObjectsModel, qtmodeltester: ModelTester) -> None:
    for snapshot, found in (
        (mlp(), None),
        (mlp(), some()),
        (mlp(gradients=True), some()),
        (mlp(device="vgpu:0"), diagnosis(finding("out"))),
        (mlp(), diagnosis()),
        (mlp(), diagnosis(*(finding(f"hidden.x{number}") for number in range(200)))),
        (mlp(), None),
    ):
        fill(tree, snapshot, found)
        assert len(shown(tree)) == len(snapshot.rows) + (0 if found is None else len(found.problems) + len(found.notes))
        qtmodeltester.check(tree)
    assert shown(tree) == MLP
    assert not tree.has_findings


def test_the_first_finding_is_opened_once(qtbot: QtBot) -> None:
    state = state_with(CPU, VGPU)
    show(state, mlp())
    panel = panel_for(qtbot, state)
    hidden = panel.model.index_of("mlp:hidden")
    assert not panel.tree.isExpanded(hidden)
    tell(state, some())
    panel.refresh()
    hidden = panel.model.index_of("mlp:hidden")
    assert panel.tree.isExpanded(hidden)
    assert not panel.tree.isExpanded(panel.model.index_of("mlp:out"))
    panel.tree.collapse(hidden)
    show(state, mlp(device="vgpu:0"))
    panel.refresh()
    assert not panel.tree.isExpanded(panel.model.index_of("mlp:hidden"))


def test_a_few_changed_rows_change_their_places_among_the_findings(tree: ObjectsModel) -> None:
    state = state_with(CPU, VGPU)
    show(state, mlp())
    tell(state, some())
    tree.update(state.objects, state.row_tables, state.diagnoses)
    told_rows: list[str] = []
    tree.dataChanged.connect(lambda first, _last: told_rows.append(first.data(TARGET_ROLE)))
    rows, place = state.objects["mlp"].rows, 4
    moved = msgspec.structs.replace(rows[place], devices=("vgpu:0",))
    rest = msgspec.structs.replace(state.objects["mlp"], rows=())
    state.apply(RowsChanged(name="mlp", places=(place,), rows=(moved,), rest=rest))
    tree.update(state.objects, state.row_tables, state.diagnoses)
    assert told_rows == ["mlp:out"]
    assert tree.index_of("mlp:out").siblingAtColumn(TreeColumn.DEVICE).data() == "vgpu:0"
    assert tree.index_of("mlp:hidden").siblingAtColumn(TreeColumn.DEVICE).data() == "cpu"
    assert tree.finding_index("mlp", 0).data() == SCALE


def test_findings_are_where_their_module_is_when_grouped(tree: ObjectsModel) -> None:
    fill(tree, mlp(), some())
    tree.arrange(Options(grouped=True))
    lines = shown(tree)
    assert lines[0] == "cpu"
    assert f"      {SCALE}" in lines
    assert sum(line.strip() in (SCALE, MIXED, SYNC) for line in lines) == 3


def test_a_filter_finds_findings(tree: ObjectsModel) -> None:
    fill(tree, mlp(), some())
    tree.arrange(Options(query=SearchQuery.of("kind:finding")))
    assert [line.strip() for line in shown(tree)] == ["mlp", MIXED, "mask is not saved.", "hidden", SCALE, "out", SYNC]
    tree.arrange(Options(query=SearchQuery.of("type:hidden-sync")))
    assert [line.strip() for line in shown(tree)] == ["mlp", "out", SYNC]


def test_findings_follow_changes_in_place_and_say_when_they_cannot() -> None:
    state = state_with(CPU)
    show(state, mlp())
    outline = state.row_tables.of(state.objects["mlp"])
    found = ObjectFindings(outline, some())
    numbers = dict(found.numbers)
    changed = outline.changed(
        tuple(msgspec.structs.replace(row, bytes=1) for row in outline.rows), range(len(outline.rows))
    )
    assert found.follow(changed)
    assert found.numbers == numbers
    np.testing.assert_array_equal(found.outline.bytes > 0, ~found.outline.kinds("finding"))
    assert not found.follow(RowTable(mlp(gradients=True).rows))


# --- the panel --------------------------------------------------------------------------------------------------------


def panel_for(qtbot: QtBot, state: State) -> ObjectsPanel:
    return hosted(qtbot, lambda _: ObjectsPanel(state), 780, 500)


def diagnosed(qtbot: QtBot) -> ObjectsPanel:
    state = state_with(CPU, VGPU)
    show(state, mlp())
    panel = panel_for(qtbot, state)
    tell(state, some())
    panel.refresh()
    panel.tree.expandAll()
    return panel


def test_a_double_click_or_return_on_a_finding_opens_it(qtbot: QtBot) -> None:
    panel = diagnosed(qtbot)
    opened: list[tuple[str, int]] = []
    panel.finding_opened.connect(lambda name, number: opened.append((name, number)))
    where = panel.tree.visualRect(panel.model.finding_index("mlp", 2)).center()
    qtbot.mouseClick(panel.tree.viewport(), LEFT, pos=where)
    assert panel.selected_targets() == ("mlp:out",)
    assert opened == []
    qtbot.mouseDClick(panel.tree.viewport(), LEFT, pos=where)
    assert opened == [("mlp", 2)]
    qtbot.mouseDClick(
        panel.tree.viewport(), LEFT, pos=panel.tree.visualRect(panel.model.index_of("mlp:out.bias")).center()
    )
    assert opened == [("mlp", 2)]
    panel.tree.setCurrentIndex(panel.model.finding_index("mlp", 1))
    qtbot.keyClick(panel.tree, Qt.Key.Key_Return)
    assert opened[1:] == [("mlp", 1)]


def test_what_is_near_a_path_is_selected(qtbot: QtBot) -> None:
    panel = diagnosed(qtbot)
    panel.select_near("mlp", "hidden.scale")
    assert panel.selected_targets() == ("mlp:hidden",)
    panel.select_near("mlp", "")
    assert panel.selected_targets() == ("mlp",)
    panel.select_near("gone", "hidden")
    assert panel.selected_targets() == ("mlp",)
    panel.filter.setText("out")
    panel.select_near("mlp", "hidden.weight")
    assert panel.selected_targets() == ("mlp",)  # the filter hides it


def test_a_diagnosis_goes_with_its_model(qtbot: QtBot) -> None:
    state = state_with(CPU)
    show(state, mlp())
    tell(state, diagnosis(hidden_sync(), notes=(note(),)))
    state.apply(ObjectRemoved(name="mlp"))
    assert state.diagnoses == {}
    show(state, mlp())
    tell(state, some())
    state.apply(EngineLost(reason="It was killed.", will_restart=True, time_unix_s=1.0))
    show(state, model("mlp", *mlp().rows))
    panel = panel_for(qtbot, state)
    assert not panel.model.has_findings
    assert FILE not in str(panel.model.index_of("mlp").data(Qt.ItemDataRole.ToolTipRole))
