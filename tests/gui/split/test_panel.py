"""The Split tab: request, edit and apply a plan; device crossings are drawn."""

from __future__ import annotations

import itertools

import pytest
from fakes.host import hosted
from fakes.look_records import CPU, ENGINE, GIB, VGPU, model, module_row, state_with, tensor_row
from msgspec.structs import replace
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.records import (
    AddVirtual,
    BuildModel,
    DeviceInfo,
    Hop,
    ObjectChanged,
    ObjectRemoved,
    ObjectSnapshot,
    UndoState,
)
from devexplorer.core.session.state import State
from devexplorer.core.split.draft import INPUT, OUTPUT, Draft, runs
from devexplorer.core.split.records import (
    Hopped,
    InsertHops,
    Join,
    PlanSplit,
    Split,
    SplitBlock,
    SplitPlan,
    SplitPlanned,
    SplitShare,
)
from devexplorer.gui.split.page import SplitPanel
from devexplorer.gui.split.plan_view import MIME, BlockColumn, decode

LEFT = Qt.MouseButton.LeftButton
MIB = 1 << 20
SECOND = replace(VGPU, id="vgpu:1")


def block(path: str, mib: int, device: str, *tied: str) -> SplitBlock:
    return SplitBlock(path=path, type="Linear", bytes=mib * MIB, device=device, now=("cpu",), tied_with=tied)


PLAN = SplitPlan(
    target="net",
    blocks=(
        block("embed", 4, "vgpu:0", "head"),
        block("layers.0", 2, "vgpu:0"),
        block("layers.1", 2, "vgpu:1"),
        block("head", 0, "vgpu:0", "embed"),
    ),
    shares=(
        SplitShare(device="vgpu:0", budget_bytes=7 * MIB, used_bytes=6 * MIB),
        SplitShare(device="vgpu:1", budget_bytes=5 * MIB, used_bytes=2 * MIB),
    ),
    hops=2,
    warnings=("accelerate's planner would have parted tied blocks; they were put together.",),
)


def net(*devices: str, hops: bool = False, name: str = "net") -> ObjectSnapshot:
    """A model whose four blocks are on these devices."""
    one, two, three, four = devices
    rows = [
        module_row("", 0, "Net", tuple(sorted(set(devices))), 8),
        module_row("embed", 1, "Linear", (one,), 4),
        tensor_row("embed.weight", 2, one, 4),
        module_row("layers", 1, "ModuleList", tuple(sorted({two, three})), 4),
        module_row("layers.0", 2, "Linear", (two,), 2),
        tensor_row("layers.0.weight", 3, two, 2),
        module_row("layers.1", 2, "Linear", (three,), 2),
        tensor_row("layers.1.weight", 3, three, 2),
        module_row("head", 1, "Linear", (four,), 4),
    ]
    return replace(model(name, *rows), hops=hops, bytes_by_device=dict.fromkeys(sorted(set(devices)), MIB))


def with_net(*more: ObjectSnapshot) -> State:
    state = state_with(CPU, VGPU, SECOND)
    state.apply(ENGINE)
    state.apply(ObjectChanged(snapshot=net("cpu", "cpu", "cpu", "cpu")))
    for snapshot in more:
        state.apply(ObjectChanged(snapshot=snapshot))
    return state


class Shown:
    """The panel, and what it asked for."""

    def __init__(self, qtbot: QtBot, state: State, width: int = 1264, height: int = 274) -> None:
        self.state = state
        self.panel = hosted(qtbot, lambda _: SplitPanel(state), width, height)
        self.asked: list[object] = []
        self.panel.command_requested.connect(self.asked.append)
        QApplication.processEvents()

    def click(self, button: QWidget) -> None:
        assert button.isEnabled()
        QTest.mouseClick(button, LEFT)

    def join(self, device: str) -> None:
        """On one device, chosen from the button's menu."""
        self.click(self.panel.join)
        menu = self.panel.join.menu()
        for _ in range([action.text() for action in menu.actions()].index(device) + 1):
            QTest.keyClick(menu, Qt.Key.Key_Down)
        QTest.keyClick(menu, Qt.Key.Key_Return)

    def apply(self, *events: object) -> Shown:
        for event in events:
            self.state.apply(event)  # type: ignore[arg-type]
        self.panel.refresh()
        QApplication.processEvents()
        return self

    def planned(self) -> Shown:
        return self.apply(SplitPlanned(plan=PLAN))

    def column(self, column: BlockColumn) -> list[str]:
        model = self.panel.model
        return [model.index(row, column).data() for row in range(model.rowCount())]


# --- nothing to split ----------------------------------------------------------------------------------------------


def test_without_a_model_one_that_is_made_for_it_can_be_built(qtbot: QtBot) -> None:
    shown = Shown(qtbot, state_with(CPU, VGPU))
    assert shown.panel.empty.isVisibleTo(shown.panel)
    assert not shown.panel.empty.button.isEnabled()
    shown.apply(ENGINE)
    shown.click(shown.panel.empty.button)
    assert shown.asked == [BuildModel(recipe="two-towers")]


def test_before_a_plan_it_is_said_what_one_would_show(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net())
    assert shown.panel.unplanned.sentence.text().startswith("Plan shows how net could be split over vgpu:0 and vgpu:1.")
    assert not shown.panel.unplanned.button.isVisibleTo(shown.panel)
    assert [share.field.placeholderText() for share in shown.panel.shares.rows.values()] == ["automatic"] * 3
    assert not shown.panel.apply.isEnabled()
    shown.click(shown.panel.plan)
    assert shown.asked == [PlanSplit(target="net", budgets={})]


@pytest.mark.parametrize(("infos", "words"), [((CPU,), "only the CPU"), ((CPU, VGPU), "a second GPU.")])
def test_with_fewer_than_two_gpus_virtual_ones_are_offered(
    qtbot: QtBot, infos: tuple[DeviceInfo, ...], words: str
) -> None:
    state = state_with(*infos)
    state.apply(ENGINE)
    state.apply(ObjectChanged(snapshot=net("cpu", "cpu", "cpu", "cpu")))
    shown = Shown(qtbot, state)
    assert words in shown.panel.unplanned.sentence.text()
    shown.click(shown.panel.unplanned.button)
    assert shown.asked == [AddVirtual(spec="2x Tesla T4")]
    shown.apply(replace(ENGINE, virtual_unavailable="torch is too old"))
    assert not shown.panel.unplanned.button.isVisibleTo(shown.panel)
    unplanned = shown.panel.unplanned
    for height in (400, 0):
        shown.panel.resize(700, max(height, shown.panel.minimumSizeHint().height()))  # as low as its tab lets it become
        QApplication.processEvents()
    sentence = unplanned.sentence
    assert sentence.height() >= sentence.heightForWidth(sentence.width()) > sentence.fontMetrics().height() * 1.5
    assert unplanned.height() >= unplanned.minimumSizeHint().height()


def test_in_a_recording_nothing_can_be_asked_for(qtbot: QtBot) -> None:
    state = with_net()
    state.recording = "a recording of yesterday"
    shown = Shown(qtbot, state).planned()
    for button in (shown.panel.plan, shown.panel.spread, shown.panel.apply, shown.panel.hops, shown.panel.join):
        assert not button.isEnabled()
        assert "recording" in button.toolTip()


# --- budgets -------------------------------------------------------------------------------------------------------


def test_budgets_are_typed_and_what_is_left_open_is_what_is_free(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net())
    rows = shown.panel.shares.rows
    assert list(rows) == ["vgpu:0", "vgpu:1", "cpu"]
    qtbot.keyClicks(rows["vgpu:0"].field, "6 MiB")
    qtbot.keyClicks(rows["cpu"].field, "0")
    shown.click(shown.panel.plan)
    (asked,) = shown.asked
    assert isinstance(asked, PlanSplit)
    assert asked.budgets["vgpu:0"] == 6 * MIB
    assert asked.budgets["cpu"] == 0
    assert 0 <= asked.budgets["vgpu:1"] <= 16 * GIB


def test_a_budget_that_is_no_number_is_said_and_nothing_is_asked(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net())
    qtbot.keyClicks(shown.panel.shares.rows["vgpu:1"].field, "much")
    assert shown.panel.warning.full_text == "Vgpu:1: 'much' is not a size; enter for example 512 MiB or 1.5 GiB."
    shown.click(shown.panel.plan)
    assert shown.asked == []


def test_the_budgets_of_a_plan_are_in_the_fields_to_the_byte(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net()).planned()
    assert [share.field.text() for share in shown.panel.shares.rows.values()] == ["7.00 MiB", "5.00 MiB", "0"]
    shown.click(shown.panel.plan)
    assert shown.asked == [PlanSplit(target="net", budgets={"vgpu:0": 7 * MIB, "vgpu:1": 5 * MIB, "cpu": 0})]
    shown.click(shown.panel.free)
    shown.click(shown.panel.plan)
    assert shown.asked[-1] == PlanSplit(target="net", budgets={})


def test_an_even_spread_is_asked_for(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net()).planned()
    shown.click(shown.panel.spread)
    assert shown.asked == [PlanSplit(target="net", even=True)]


def test_bars_show_what_the_plan_uses(qtbot: QtBot) -> None:
    rows = Shown(qtbot, with_net()).planned().panel.shares.rows
    assert [share.bar.accessibleDescription() for share in rows.values()] == [
        "6.00 MiB of 7.00 MiB",
        "2.00 MiB of 5.00 MiB",
        "left out of the plan",
    ]
    assert not any(share.bar.over for share in rows.values())


# --- the plan ------------------------------------------------------------------------------------------------------


def test_the_plan_is_a_table_of_blocks(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net()).planned()
    assert shown.column(BlockColumn.BLOCK) == ["embed  (tied)", "layers.0", "layers.1", "head  (tied)"]
    assert shown.column(BlockColumn.TYPE) == ["Linear"] * 4
    assert shown.column(BlockColumn.SIZE) == ["4.00 MiB", "2.00 MiB", "2.00 MiB", "0 B"]
    assert shown.column(BlockColumn.NOW) == ["cpu"] * 4
    assert shown.column(BlockColumn.DEVICE) == ["vgpu:0", "vgpu:0", "vgpu:1", "vgpu:0"]
    assert shown.panel.summary.text() == "4 blocks, 2 hops if they run in order."
    assert shown.panel.warning.full_text == PLAN.warnings[0]


def test_another_device_is_chosen_in_the_cell(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net()).planned()
    table = shown.panel.table
    at = table.visualRect(shown.panel.model.index(1, BlockColumn.DEVICE)).center()
    QTest.mouseClick(table.viewport(), LEFT, pos=at)
    editor = table.findChild(QComboBox)
    assert isinstance(editor, QComboBox)
    assert [editor.itemText(item) for item in range(editor.count())] == ["vgpu:0", "vgpu:1", "cpu"]
    assert editor.accessibleName() == "device of layers.0"
    QApplication.processEvents()
    QTest.keyClick(editor.view(), Qt.Key.Key_Down)
    QTest.keyClick(editor.view(), Qt.Key.Key_Return)
    QApplication.processEvents()
    assert shown.column(BlockColumn.DEVICE) == ["vgpu:0", "vgpu:1", "vgpu:1", "vgpu:0"]
    assert "Edited: Apply moves the blocks." in shown.panel.summary.text()
    shown.click(shown.panel.apply)
    wanted = {"embed": "vgpu:0", "layers.0": "vgpu:1", "layers.1": "vgpu:1", "head": "vgpu:0"}
    assert shown.asked == [Split(target="net", device_map=wanted)]


def drop(widget: QWidget, data: QMimeData, at: QPoint) -> bool:
    """Drag over the widget and let go; whether it was taken."""
    action, button, none = Qt.DropAction.MoveAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(at, action, data, button, none)
    QApplication.sendEvent(widget, enter)
    if not enter.isAccepted():
        return False
    QApplication.sendEvent(widget, QDragMoveEvent(at, action, data, button, none))
    release = QDropEvent(QPointF(at), action, data, button, none)
    QApplication.sendEvent(widget, release)
    return release.isAccepted()


def test_rows_are_dropped_on_a_budget_and_tied_ones_come_along(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net()).planned()
    model = shown.panel.model
    data = model.mimeData([model.index(0, column) for column in BlockColumn])
    assert drop(shown.panel.shares.rows["vgpu:1"], data, QPoint(20, 10))
    assert shown.column(BlockColumn.DEVICE) == ["vgpu:1", "vgpu:0", "vgpu:1", "vgpu:1"]
    assert "Moved along to vgpu:1, because they share a tensor: head." in shown.panel.summary.text()
    share = shown.panel.shares.rows["vgpu:1"]
    assert share.bar.over
    assert share.words.text() == "▲ 6.00 MiB of"
    assert share.bar.accessibleDescription() == "6.00 MiB of 5.00 MiB, 1.00 MiB too much"
    assert "▲ More than the budget of vgpu:1" in shown.panel.warning.full_text


def test_a_plan_over_its_budget_is_no_warning_once_it_was_applied(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net()).planned()
    shown.panel._put([0], "vgpu:1")
    assert "More than the budget of vgpu:1" in shown.panel.warning.full_text
    shown.apply(ObjectChanged(snapshot=net("vgpu:1", "vgpu:0", "vgpu:1", "vgpu:1")))
    assert "The model is split like this." in shown.panel.summary.text()
    assert "More than the budget" not in shown.panel.warning.full_text


@pytest.mark.parametrize("broken", [b"", b"\xff", b"{}", b'["a"]'])
def test_other_drags_are_refused(qtbot: QtBot, broken: bytes) -> None:
    shown = Shown(qtbot, with_net()).planned()
    data = QMimeData()
    data.setData(MIME, broken)
    assert decode(data) == []
    assert not drop(shown.panel.shares.rows["vgpu:1"], data, QPoint(20, 10))
    shown.panel._put([7], "vgpu:1")  # a drag from before the plan changed
    assert shown.column(BlockColumn.DEVICE) == ["vgpu:0", "vgpu:0", "vgpu:1", "vgpu:0"]


def test_a_new_plan_replaces_what_was_edited(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net()).planned()
    shown.panel._put([1], "vgpu:1")
    shown.apply(ObjectChanged(snapshot=net("cpu", "cpu", "cpu", "cpu")))
    assert shown.column(BlockColumn.DEVICE)[1] == "vgpu:1"
    shown.apply(SplitPlanned(plan=replace(PLAN, hops=3)))
    assert shown.column(BlockColumn.DEVICE)[1] == "vgpu:0"


# --- what was done -------------------------------------------------------------------------------------------------

SPLIT = net("vgpu:0", "vgpu:0", "vgpu:1", "vgpu:0", hops=True)
HOPS = (
    Hop(before="", after="embed", source="cpu", destination="vgpu:0", bytes=64, seconds=6e-6, simulated=True),
    Hop(
        before="layers.0",
        after="layers.1",
        source="vgpu:0",
        destination="vgpu:1",
        bytes=1024,
        seconds=6e-6,
        simulated=True,
    ),
    Hop(before="layers", after="head.inner", source="vgpu:1", destination="vgpu:0", bytes=1024),
    Hop(before="head", after="", source="vgpu:0", destination="cpu", bytes=4096, seconds=7e-6, simulated=True),
)


def test_a_model_that_is_split_says_so_and_how_to_take_it_back(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net()).planned()
    assert [arrow.hop for arrow in shown.panel.picture.arrows] == [None, None]
    shown.apply(
        ObjectChanged(snapshot=replace(SPLIT, bytes_by_device={"cpu": 4, **SPLIT.bytes_by_device})),  # an optimizer's
        UndoState(title="the split of net", kept_bytes=0, command=Split(target="net", device_map={})),
    )
    assert shown.column(BlockColumn.NOW) == ["vgpu:0", "vgpu:0", "vgpu:1", "vgpu:0"]
    assert not shown.panel.apply.isEnabled()
    words = shown.panel.summary.text()
    assert "The model is split like this. Run a forward to see what hops." in words
    assert "Undo (Ctrl+Z) takes back the split of net." in words
    assert shown.panel.hops.text() == "Remove hops"


def test_the_hops_of_the_latest_forward_are_drawn(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net()).planned().apply(ObjectChanged(snapshot=SPLIT), Hopped(target="net", hops=HOPS))
    picture = shown.panel.picture
    assert [(arrow.before, arrow.after) for arrow in picture.arrows] == [(INPUT, 0), (1, 2), (2, 3), (3, OUTPUT)]
    assert picture.lanes == ("vgpu:0", "vgpu:1", "cpu")
    boxes = picture.boxes()
    assert [(box.words, box.lane) for box in (boxes[0], boxes[-1])] == [("input", "cpu"), ("output", "cpu")]
    assert all(one.rect.bottom() < other.rect.top() for one, other in itertools.pairwise(boxes))
    told = picture.tip_at(boxes[3].rect.center())
    assert told.splitlines() == [
        "layers.1: 2.0 MiB on vgpu:1",
        "from layers.0 on vgpu:0 to layers.1 on vgpu:1: 1.0 KiB · 6 µs sim.",
        "from layers.1 on vgpu:1 to head on vgpu:0: 1.0 KiB",
    ]
    assert "Arrows show the hops of the latest forward" in shown.panel.summary.text()
    shown.panel._put([1], "vgpu:1")  # now the arrows are those of the edited plan
    assert all(arrow.hop is None for arrow in picture.arrows)


def test_a_model_that_is_on_one_device_fetches_its_input_as_a_whole() -> None:
    there, back = (replace(HOPS[0], after=""), replace(HOPS[3], before=""))
    assert [(arrow.before, arrow.after) for arrow in Draft(PLAN).arrows([there, back])] == [(INPUT, 0), (3, OUTPUT)]


def test_what_the_model_holds_itself_is_a_block_of_its_own() -> None:
    plan = replace(PLAN, blocks=(block("", 1, "vgpu:0"), block("embed", 4, "vgpu:1")), shares=())
    rows = [
        module_row("", 0, "Net", ("vgpu:0", "vgpu:1"), 5),
        tensor_row("scale", 1, "vgpu:0", 1),
        module_row("embed", 1, "Linear", ("vgpu:1",), 4),
    ]
    draft = Draft(plan)
    assert draft.now(model("net", *rows)) == [("vgpu:0",), ("vgpu:1",)]
    assert draft.command().device_map == {"": "vgpu:0", "embed": "vgpu:1"}
    assert draft.over() == ["vgpu:0", "vgpu:1"]


def test_a_long_row_of_blocks_becomes_one_box_so_that_hops_are_in_sight(qtbot: QtBot) -> None:
    devices = ["vgpu:0"] * 9 + ["vgpu:1"] * 4
    assert runs(devices, {4}) == [[0], [1, 2, 3], [4], [5, 6, 7], [8], [9], [10], [11], [12]]
    assert runs(["cpu"] * 5, ()) == [[0], [1, 2, 3], [4]]
    assert runs(["cpu"], ()) == [[0]]
    plan = replace(PLAN, blocks=tuple(block(f"layers.{index}", 1, device) for index, device in enumerate(devices)))
    picture = Shown(qtbot, with_net()).apply(SplitPlanned(plan=plan)).panel.picture
    boxes = picture.boxes()
    assert [box.words for box in boxes] == [
        "layers.0",
        "7 more",
        "layers.8",
        "layers.9",
        "layers.10",
        "layers.11",
        "layers.12",
    ]
    assert picture.tip_at(boxes[1].rect.center()) == "7 more: 7.0 MiB on vgpu:0"
    assert picture.tip_at(boxes[3].rect.center()).splitlines()[1] == "from layers.8 to layers.9: planned"


def test_three_lanes_get_narrow_before_they_scroll_sideways(qtbot: QtBot) -> None:
    shown = (
        Shown(qtbot, with_net(), width=820)
        .planned()
        .apply(ObjectChanged(snapshot=SPLIT), Hopped(target="net", hops=HOPS))
    )
    picture = shown.panel.picture
    assert len(picture.lanes) == 3
    assert picture.sizeHint().width() > picture.visibleRegion().boundingRect().width() == picture.width()


def test_hops_are_inserted_and_the_model_is_joined(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net())
    shown.click(shown.panel.hops)
    shown.join("vgpu:1")
    shown.apply(ObjectChanged(snapshot=SPLIT))
    shown.click(shown.panel.hops)
    assert shown.asked == [
        InsertHops(target="net"),
        Join(target="net", device="vgpu:1"),
        InsertHops(target="net", on=False),
    ]


def test_a_model_dispatched_elsewhere_can_only_be_joined(qtbot: QtBot) -> None:
    theirs = replace(
        net("cpu", "cpu", "cpu", "cpu"), dispatched="accelerate dispatched this model: Join takes its hooks away"
    )
    shown = Shown(qtbot, with_net(theirs)).planned()
    assert not shown.panel.apply.isEnabled()
    assert "join it first" in shown.panel.apply.toolTip()
    assert not shown.panel.hops.isEnabled()
    assert shown.panel.warning.full_text.endswith("ccelerate dispatched this model: Join takes its hooks away.")
    shown.join("vgpu:0")
    assert shown.asked == [Join(target="net", device="vgpu:0")]


# --- several models ------------------------------------------------------------------------------------------------


def test_the_page_follows_the_selection_and_keeps_each_models_edits(qtbot: QtBot) -> None:
    shown = Shown(qtbot, with_net(net("cpu", "cpu", "cpu", "cpu", name="other"))).planned()
    shown.panel._put([1], "vgpu:1")
    shown.panel.set_selection(("other:layers.0",))
    assert shown.panel.models.value == "other"
    assert shown.panel.draft is None
    shown.panel.set_selection(("net",))
    assert shown.column(BlockColumn.DEVICE)[1] == "vgpu:1"
    shown.panel.set_selection(())
    assert shown.panel.models.value == "net"
    shown.apply(ObjectRemoved(name="net"))
    assert shown.panel.models.value == "other"
    shown.apply(ObjectRemoved(name="other"))
    assert shown.panel.empty.isVisibleTo(shown.panel)
