from __future__ import annotations

from fakes.host import hosted
from fakes.look_records import CPU, CUDA, ENGINE, VGPU, mlp, model, module_row, show, state_with, tensor
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor, QImage
from pytestqt.qtbot import QtBot

from devexplorer.core.records.messages import EngineLost, ObjectRemoved
from devexplorer.core.state import State
from devexplorer.gui.item_models.objects import Column
from devexplorer.gui.panels.objects import ObjectsPanel
from devexplorer.gui.theme import DARK, LIGHT

LEFT = Qt.MouseButton.LeftButton


def panel_for(qtbot: QtBot, state: State) -> ObjectsPanel:
    return hosted(qtbot, lambda host: ObjectsPanel(state, DARK, host), 780, 500)


def click(qtbot: QtBot, panel: ObjectsPanel, target: str, keys: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
    index = panel.proxy.mapFromSource(panel.model.index_of(target))
    qtbot.mouseClick(panel.tree.viewport(), LEFT, keys, panel.tree.visualRect(index).center())


def colours(image: QImage) -> set[str]:
    return {image.pixelColor(x, y).name().upper() for x in range(image.width()) for y in range(image.height())}


def test_an_empty_workspace_offers_the_first_model(qtbot: QtBot):
    state = state_with(CPU)
    state.apply(ENGINE)
    panel = panel_for(qtbot, state)
    assert panel.is_empty
    assert panel.empty.sentence.text() == "Nothing here yet. Build a sample model or create a tensor."
    with qtbot.waitSignal(panel.build_requested) as built:
        qtbot.mouseClick(panel.empty.button, LEFT)
    assert built.args == ["mlp"]


def test_an_empty_workspace_offers_nothing_while_there_is_no_engine(qtbot: QtBot):
    state = state_with(CPU)
    panel = panel_for(qtbot, state)
    assert panel.empty.sentence.text() == "The engine is starting."
    assert not panel.empty.button.isEnabled()
    assert panel.empty.button.toolTip() == "The engine is not ready yet."
    state.apply(ENGINE)
    panel.refresh()
    assert panel.empty.button.isEnabled()
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


def test_selection_and_expansion_survive_a_move_and_new_gradients(qtbot: QtBot):
    state = state_with(CPU, VGPU)
    show(state, mlp(), tensor("x"))
    panel = panel_for(qtbot, state)
    panel.expand("mlp")
    panel.select("mlp:hidden", "x")
    show(state, mlp(device="vgpu:0", gradients=True))
    panel.refresh()
    assert panel.selected_targets() == ("mlp:hidden", "x")
    assert panel.tree.isExpanded(panel.proxy.mapFromSource(panel.model.index_of("mlp")))


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
    root = panel.proxy.index(0, 0)
    assert panel.proxy.rowCount() == 1
    assert panel.tree.isExpanded(root)
    assert panel.tree.isExpanded(panel.proxy.index(0, 0, root))
    qtbot.keyClicks(panel.filter, "zzz")
    assert panel.proxy.rowCount() == 0
    assert panel.tree.nothing == "Nothing matches “biaszzz”."


def test_a_right_click_asks_for_the_menu_at_that_place(qtbot: QtBot):
    state = state_with(CPU)
    show(state, tensor("x"))
    panel = panel_for(qtbot, state)
    with qtbot.waitSignal(panel.context_menu_requested) as asked:
        panel.tree.customContextMenuRequested.emit(QPoint(10, 10))
    assert asked.args == [panel.tree.viewport().mapToGlobal(QPoint(10, 10))]


def test_a_drag_announces_its_targets_and_its_end(qtbot: QtBot, monkeypatch):
    from devexplorer.gui.panels import objects_tree

    class NoDrag(objects_tree.QDrag):
        def exec(self, *_args):  # the loop that follows the mouse
            return Qt.DropAction.MoveAction

    monkeypatch.setattr(objects_tree, "QDrag", NoDrag)
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


def test_chips_have_the_colours_of_their_devices_in_both_themes(qtbot: QtBot):
    state = state_with(CPU, CUDA, VGPU)
    show(state, model("m", module_row("", 0, "M", ("cpu", "cuda:0"))), tensor("y", "vgpu:0"))
    panel = panel_for(qtbot, state)
    for theme in (DARK, LIGHT):
        panel.set_theme(theme)
        for row, devices in enumerate(((theme.cpu, theme.devices[0]), (theme.devices[1],))):
            where = panel.tree.visualRect(panel.proxy.index(row, Column.DEVICE))
            painted = colours(panel.tree.viewport().grab(where).toImage())
            assert {QColor(colour).name().upper() for colour in devices} <= painted
    mixed = panel.tree.visualRect(panel.proxy.index(0, 0))
    assert LIGHT.warning in colours(panel.tree.viewport().grab(mixed).toImage())


def test_chips_without_room_are_counted(qtbot: QtBot):
    state = state_with(CPU, CUDA, VGPU)
    devices = ("cpu", "cuda:0", "cuda:1", "cuda:2", "vgpu:0")
    show(state, model("m", module_row("", 0, "M", devices)))
    panel = panel_for(qtbot, state)
    where = panel.tree.visualRect(panel.proxy.index(0, Column.DEVICE))
    painted = panel.tree.viewport().grab(where).toImage()
    assert DARK.devices[1] not in colours(painted)
    assert "cuda:2, vgpu:0" in panel.proxy.index(0, Column.DEVICE).data(Qt.ItemDataRole.ToolTipRole)


def test_columns_are_narrower_in_a_narrow_panel(qtbot: QtBot):
    state = state_with(CPU)
    show(state, tensor("x"))
    panel = panel_for(qtbot, state)
    wide = panel.tree.columnWidth(Column.SHAPE)
    panel.resize(640, 500)
    assert panel.tree.columnWidth(Column.SHAPE) < wide
    assert panel.tree.columnWidth(Column.NAME) > 150
