from __future__ import annotations

from fakes.host import hosted
from fakes.look_records import CPU, CUDA, ENGINE, VGPU, mlp, model, module_row, show, state_with, tensor, tensor_row
from PySide6.QtCore import QEvent, QItemSelection, QItemSelectionModel, QPoint, QPointF, Qt
from PySide6.QtGui import QImage, QMouseEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.records import EngineLost, ObjectRemoved
from devexplorer.core.session.state import State
from devexplorer.gui.objects.item_model import TARGET_ROLE, TreeColumn
from devexplorer.gui.objects.panel import WAYS, ObjectsPanel
from devexplorer.gui.widgets.theme import DARK

LEFT = Qt.MouseButton.LeftButton


def panel_for(qtbot: QtBot, state: State) -> ObjectsPanel:
    return hosted(qtbot, lambda _: ObjectsPanel(state), 780, 500)


def click(
    qtbot: QtBot, panel: ObjectsPanel, target: str, keys: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
) -> None:
    index = panel.model.index_of(target)
    qtbot.mouseClick(panel.tree.viewport(), LEFT, keys, panel.tree.visualRect(index).center())


def colours(image: QImage) -> set[str]:
    return {image.pixelColor(x, y).name().upper() for x in range(image.width()) for y in range(image.height())}


def test_an_empty_workspace_offers_three_ways_in(qtbot: QtBot):
    state = state_with(CPU)
    state.apply(ENGINE)
    panel = panel_for(qtbot, state)
    assert panel.is_empty
    assert panel.empty.sentence.text() == "Where do you want to begin?"
    for way in WAYS:
        button = panel.empty.buttons[way.name]
        assert (button.accessibleName(), button.accessibleDescription()) == (way.title, way.words)
        with qtbot.waitSignal(panel.way_chosen) as chosen:
            qtbot.mouseClick(button, LEFT)
        assert chosen.args == [way.name]


def test_an_empty_workspace_offers_only_to_watch_while_there_is_no_engine(qtbot: QtBot):
    state = state_with(CPU)
    panel = panel_for(qtbot, state)
    assert panel.empty.sentence.text() == "The engine is starting."
    buttons = panel.empty.buttons
    assert [name for name, button in buttons.items() if button.isEnabled()] == ["watch"]
    assert buttons["build"].toolTip() == "The engine is not ready yet."
    state.apply(ENGINE)
    panel.refresh()
    assert all(button.isEnabled() for button in buttons.values())
    state.apply(EngineLost(reason="It was killed.", will_restart=True, time_unix_s=1.0))
    panel.refresh()
    assert panel.empty.sentence.text() == "The engine is being restarted. The objects come back with it."
    state.apply(EngineLost(reason="It was killed.", will_restart=False, time_unix_s=2.0))
    panel.refresh()
    assert panel.empty.sentence.text() == "The engine has stopped, and the objects went with it."


def test_clicks_select_objects_and_parts_of_models(qtbot: QtBot):
    state = state_with(CPU)
    show(state, mlp(), tensor("x"))
    panel = panel_for(qtbot, state)
    told: list[tuple[str, ...]] = []
    panel.selection_changed.connect(told.append)
    panel.expand("mlp")
    click(qtbot, panel, "mlp:hidden")
    click(qtbot, panel, "x", Qt.KeyboardModifier.ControlModifier)
    assert panel.selected_targets() == ("mlp:hidden", "x")
    assert told[0] == ("mlp:hidden",)
    assert told[-1] == ("mlp:hidden", "x")


def test_everything_in_the_selected_object_is_unfolded(qtbot: QtBot):
    state = state_with(CPU)
    show(state, mlp(), mlp("other"))
    panel = panel_for(qtbot, state)
    click(qtbot, panel, "mlp")
    panel.unfold()
    names = ("mlp:hidden", "mlp:out", "other:hidden")
    opened = {name: panel.tree.isExpanded(panel.model.index_of(name)) for name in names}
    assert opened == {"mlp:hidden": True, "mlp:out": True, "other:hidden": False}


def test_selection_and_expansion_survive_a_move_and_new_gradients(qtbot: QtBot):
    state = state_with(CPU, VGPU)
    show(state, mlp(), tensor("x"))
    panel = panel_for(qtbot, state)
    panel.expand("mlp")
    panel.select("mlp:hidden", "x")
    show(state, mlp(device="vgpu:0", gradients=True))
    panel.refresh()
    assert panel.selected_targets() == ("mlp:hidden", "x")
    assert panel.tree.isExpanded(panel.model.index_of("mlp"))


def test_a_removed_object_is_no_longer_selected(qtbot: QtBot):
    state = state_with(CPU)
    show(state, tensor("x"))
    panel = panel_for(qtbot, state)
    panel.select("x")
    told: list[tuple[str, ...]] = []
    panel.selection_changed.connect(told.append)
    state.apply(ObjectRemoved(name="x"))
    panel.refresh()
    assert told[-1] == ()
    assert panel.is_empty


def test_typing_in_the_filter_shows_and_opens_what_matches(qtbot: QtBot):
    state = state_with(CPU)
    show(state, mlp(), tensor("x"))
    panel = panel_for(qtbot, state)
    panel.focus_filter()
    qtbot.keyClicks(panel.filter, "bias")
    root = panel.model.index(0, 0)
    assert panel.model.rowCount() == 1
    assert panel.tree.isExpanded(root)
    assert panel.tree.isExpanded(panel.model.index(0, 0, root))
    qtbot.keyClicks(panel.filter, "zzz")
    assert panel.model.rowCount() == 0
    assert panel.tree.nothing == "Nothing matches “biaszzz”."


def test_a_right_click_asks_for_the_menu_at_that_place(qtbot: QtBot):
    state = state_with(CPU)
    show(state, tensor("x"))
    panel = panel_for(qtbot, state)
    with qtbot.waitSignal(panel.context_menu_requested) as asked:
        panel.tree.customContextMenuRequested.emit(QPoint(10, 10))
    assert asked.args == [panel.tree.viewport().mapToGlobal(QPoint(10, 10))]


def test_a_drag_announces_its_targets_and_its_end(qtbot: QtBot, monkeypatch):
    from devexplorer.gui.objects import tree

    class NoDrag(tree.QDrag):
        def exec(self, *_args):  # the loop that follows the mouse
            return Qt.DropAction.MoveAction

    monkeypatch.setattr(tree, "QDrag", NoDrag)
    state = state_with(CPU)
    show(state, mlp(), tensor("x"))
    panel = panel_for(qtbot, state)
    told: list[object] = []
    panel.drag_started.connect(told.append)
    panel.drag_ended.connect(lambda: told.append("end"))
    panel.tree.clearSelection()
    panel.tree.startDrag(Qt.DropAction.MoveAction)
    assert told == []
    panel.select("mlp", "x")
    panel.tree.startDrag(Qt.DropAction.MoveAction)
    assert told == [("mlp", "x"), "end"]
    assert panel.tree.drag_picture(("mlp", "x")).width() > 40


def press_and_pull(panel: ObjectsPanel, target: str, pixels: int) -> None:
    """Press the left button on a row, pull the mouse down, let go."""
    start = panel.tree.visualRect(panel.model.index_of(target)).center()
    left, none, viewport = LEFT, Qt.MouseButton.NoButton, panel.tree.viewport()
    steps = [
        (QEvent.Type.MouseButtonPress, 0, left, left),
        *((QEvent.Type.MouseMove, at, none, left) for at in (pixels // 2, pixels)),
    ]
    for kind, down, button, held in (*steps, (QEvent.Type.MouseButtonRelease, pixels, left, none)):
        where = QPointF(start + QPoint(0, down))
        event = QMouseEvent(kind, where, viewport.mapToGlobal(where), button, held, Qt.KeyboardModifier.NoModifier)
        QApplication.sendEvent(viewport, event)


def test_a_row_that_is_pulled_is_dragged_with_what_else_is_selected(qtbot: QtBot, monkeypatch):
    state = state_with(CPU)
    show(state, tensor("x"), tensor("y"), tensor("z"))
    panel = panel_for(qtbot, state)
    dragged: list[tuple[str, ...]] = []
    monkeypatch.setattr(type(panel.tree), "startDrag", lambda *_: dragged.append(panel.selected_targets()))
    press_and_pull(panel, "x", 40)
    assert dragged == [("x",)]
    assert panel.selected_targets() == ("x",), "what the mouse came across is not selected"
    panel.select("x", "z")
    press_and_pull(panel, "z", 40)
    assert dragged[1:] == [("x", "z")]
    assert panel.tree.state() == panel.tree.State.NoState
    press_and_pull(panel, "y", 4)
    assert len(dragged) == 2, "a hand that trembles drags nothing"
    assert panel.selected_targets() == ("y",)
    qtbot.mouseClick(panel.tree.viewport(), LEFT, pos=QPoint(300, 400))
    assert panel.selected_targets() == ()


def test_chips_without_room_are_counted(qtbot: QtBot):
    state = state_with(CPU, CUDA, VGPU)
    devices = ("cpu", "cuda:0", "cuda:1", "cuda:2", "vgpu:0")
    show(state, model("m", module_row("", 0, "M", devices)))
    panel = panel_for(qtbot, state)
    where = panel.tree.visualRect(panel.model.index(0, TreeColumn.DEVICE))
    painted = panel.tree.viewport().grab(where).toImage()
    assert DARK.devices[1] not in colours(painted)
    assert "cuda:2, vgpu:0" in panel.model.index(0, TreeColumn.DEVICE).data(Qt.ItemDataRole.ToolTipRole)


# --- order, groups, totals -------------------------------------------------------------------------------------------


def shown(panel: ObjectsPanel) -> list[str]:
    """What is shown, in order: targets, and devices in brackets."""
    found, index = [], panel.model.index(0, 0)
    while index.isValid():
        found.append(index.data(TARGET_ROLE) or f"[{index.data()}]")
        index = panel.tree.indexBelow(index)
    return found


def click_header(qtbot: QtBot, panel: ObjectsPanel, column: TreeColumn) -> None:
    header = panel.tree.header()
    where = QPoint(header.sectionViewportPosition(column) + 20, header.height() // 2)
    qtbot.mouseClick(header.viewport(), LEFT, pos=where)


def test_clicks_on_the_headers_sort_turn_round_and_bring_the_order_back(qtbot: QtBot):
    state = state_with(CPU)
    show(state, tensor("x10", mib=2), tensor("x9", mib=3), tensor("X1", mib=1))
    panel = panel_for(qtbot, state)
    panel.select("x9")
    orders = []
    for column in (*[TreeColumn.MIB] * 3, *[TreeColumn.NAME] * 3, TreeColumn.TYPE):
        click_header(qtbot, panel, column)
        orders.append(shown(panel))
    plain = ["x10", "x9", "X1"]
    assert orders[:3] == [["x9", "x10", "X1"], ["X1", "x10", "x9"], plain]
    assert orders[3:] == [["X1", "x9", "x10"], ["x10", "x9", "X1"], plain, plain]
    assert panel.selected_targets() == ("x9",)


def test_the_toggle_groups_by_device_and_keeps_selection_and_what_is_open(qtbot: QtBot):
    state = state_with(CPU, VGPU)
    show(state, mlp(), tensor("x", "vgpu:0"))
    panel = panel_for(qtbot, state)
    panel.expand("mlp:hidden")
    panel.select("mlp:hidden", "x")
    qtbot.mouseClick(panel.by_device, LEFT)
    assert shown(panel) == [
        "[cpu]",
        "mlp",
        "mlp:hidden",
        "mlp:hidden.weight",
        "mlp:hidden.bias",
        "mlp:out",
        "[vgpu:0]",
        "x",
    ]
    assert panel.selected_targets() == ("mlp:hidden", "x")
    show(state, mlp(device="vgpu:0"))
    panel.refresh()
    assert shown(panel)[:3] == ["[vgpu:0]", "mlp", "mlp:hidden"]
    assert panel.selected_targets() == ("mlp:hidden", "x")
    qtbot.mouseClick(panel.by_device, LEFT)
    assert shown(panel) == ["mlp", "mlp:hidden", "mlp:hidden.weight", "mlp:hidden.bias", "mlp:out", "x"]


def test_what_was_open_before_a_filter_is_open_again_after_it(qtbot: QtBot):
    state = state_with(CPU)
    show(state, mlp(), tensor("x"))
    panel = panel_for(qtbot, state)
    panel.expand("mlp:out")
    before = shown(panel)
    panel.focus_filter()
    qtbot.keyClicks(panel.filter, "hidden")
    assert "mlp:out" not in shown(panel)
    panel.filter.clear()
    assert shown(panel) == before


def test_everything_that_matches_a_filter_can_be_selected_at_once(qtbot: QtBot):
    state = state_with(CPU)
    show(state, mlp(), mlp("other"), tensor("x"))
    panel = panel_for(qtbot, state)
    panel.focus_filter()
    qtbot.keyClicks(panel.filter, "kind:tensor")
    panel.tree.setFocus()
    qtbot.keyClick(panel.tree, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert panel.selected_targets() == ("x",)
    panel.filter.setText("out.bias")
    click_header(qtbot, panel, TreeColumn.MIB)
    qtbot.keyClick(panel.tree, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert panel.selected_targets() == ("mlp:out.bias", "other:out.bias"), "what matches, not what it is in"
    panel.filter.setText("name:out")
    qtbot.keyClick(panel.tree, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert panel.selected_targets() == ("mlp:out", "other:out")
    panel.filter.clear()
    qtbot.keyClick(panel.tree, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert panel.selected_targets() == ("mlp", "other", "x"), "what is in them comes along and is not named"
    panel.tree.collapseAll()
    panel.tree.clearSelection()
    panel.expand("mlp")
    click(qtbot, panel, "mlp:hidden")
    click(qtbot, panel, "mlp:out", Qt.KeyboardModifier.ShiftModifier)
    assert panel.selected_targets() == ("mlp:hidden", "mlp:out")


def large(layers: int = 1_000, device: str = "cpu"):
    rows = [module_row("", 0, "Big", (device,), 5 * layers)]
    for layer in range(layers):
        rows.append(module_row(f"layers.{layer}", 1, "Linear", (device,), 5))
        rows += [
            tensor_row(f"layers.{layer}.{part}", 2, device) for part in ("weight", "bias", "scale", "shift", "mean")
        ]
    return model("big", *rows)


def test_thousands_of_rows_stay_selected_in_every_order_and_move_as_one(qtbot: QtBot):
    state = state_with(CPU, VGPU)
    show(state, large())
    panel = panel_for(qtbot, state)
    root = panel.model.index_of("big")
    first, last = panel.model.index(100, 0, root), panel.model.index(899, TreeColumn.MIB, root)
    panel.tree.selectionModel().select(QItemSelection(first, last), QItemSelectionModel.SelectionFlag.ClearAndSelect)
    targets = panel.selected_targets()
    assert (len(targets), targets[0], targets[-1]) == (800, "big:layers.100", "big:layers.899")
    for arrange in (panel.by_device.click, panel.training_parts.click, panel.by_device.click):
        arrange()
        assert panel.selected_targets() == targets
    click_header(qtbot, panel, TreeColumn.NAME)
    assert panel.selected_targets() == targets
    show(state, large(device="vgpu:0"))
    panel.refresh()
    assert panel.selected_targets() == targets
