"""The Doctor tab: requests, refusals, the list of findings, details, double-click."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from fakes.diagnoses import CODE, FILE, PATCH, diagnosis, finding, hidden_sync, note, some, tell
from fakes.host import hosted
from fakes.look_records import CPU, CUDA, ENGINE, VGPU, mlp, model, module_row, show, state_with, tensor
from PySide6.QtCore import QObject, QPoint, Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices, QGuiApplication
from pytestqt.qtbot import QtBot

from devexplorer.core.records import (
    AddVirtual,
    Answer,
    ApplyPatch,
    Cancel,
    Check,
    Command,
    Diagnosis,
    JobEnded,
    JobProgress,
    JobStarted,
    ObjectRemoved,
    Offer,
    Unchecked,
)
from devexplorer.core.records.doctor import CHANGED
from devexplorer.core.session.state import State
from devexplorer.gui.doctor.finding import PATH, PLACE, RULE, all_of_it, cost_text, sign_of
from devexplorer.gui.doctor.page import AT_WORK, NO_MODEL, NOTHING, OLD, ONLY_CPU, WORKING, DoctorPanel
from devexplorer.gui.widgets.table import ROW_PX, Cell

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def state() -> State:
    state = state_with(CPU, VGPU)
    state.apply(ENGINE)
    show(state, mlp(), tensor("x"))
    return state


@pytest.fixture
def sent() -> list[Command]:
    return []


@pytest.fixture
def panel(qtbot: QtBot, state: State, sent: list[Command]) -> DoctorPanel:
    return panel_for(qtbot, state, sent)


def panel_for(qtbot: QtBot, state: State, sent: list[Command], *, width: int = 1264) -> DoctorPanel:
    made = hosted(qtbot, lambda _: DoctorPanel(state), width, 274)
    made.command_requested.connect(sent.append)
    made.set_selection(("mlp:hidden",))
    return made


def say(state: State, panel: DoctorPanel, found: Diagnosis) -> None:
    tell(state, found)
    panel.refresh()


CHECK = Check(target="mlp", device="vgpu:0")


def begun(state: State, panel: DoctorPanel, command: Command = CHECK, request: int = 7) -> None:
    state.apply(JobStarted(request=request, title="checking mlp", time_unix_s=1.0, command=command))
    panel.refresh()


def cells(panel: DoctorPanel) -> list[tuple[Cell, ...]]:
    return [row.cells for row in panel.model.rows]


def texts(panel: DoctorPanel) -> list[list[str]]:
    return [[cell.text for cell in row] for row in cells(panel)]


def click_row(qtbot: QtBot, panel: DoctorPanel, row: int, *, twice: bool = False) -> None:
    where = panel.table.visualRect(panel.model.index(row, PLACE)).center()
    qtbot.mouseClick(panel.table.viewport(), LEFT, pos=where)
    if twice:
        qtbot.mouseDClick(panel.table.viewport(), LEFT, pos=where)


def test_a_long_sentence_has_as_many_lines_as_it_needs(state: State, panel: DoctorPanel) -> None:
    say(state, panel, diagnosis(finding(message="It stays on the CPU. " * 12)))
    assert panel.table.rowHeight(0) >= 2 * ROW_PX
    panel.resize(700, panel.height())  # the list is low, and the chosen sentence is whole below it
    assert ROW_PX < panel.table.rowHeight(0) < 2 * ROW_PX


# --- the form ---------------------------------------------------------------------------------------------------------


def test_check_asks_for_what_the_form_says(qtbot: QtBot, panel: DoctorPanel, sent: list[Command]) -> None:
    qtbot.mouseClick(panel.form.check_button, LEFT)
    qtbot.mouseClick(panel.form.train, LEFT, pos=QPoint(8, panel.form.train.height() // 2))
    qtbot.keyClicks(panel.form.inputs, "8x20")
    qtbot.keyClick(panel.form.inputs, Qt.Key.Key_Return)
    qtbot.keyClick(panel.form.device, Qt.Key.Key_End)
    qtbot.mouseClick(panel.form.check_button, LEFT)
    assert sent == [
        Check(target="mlp", device="vgpu:0"),
        Check(target="mlp", device="vgpu:0", train=True, inputs="8x20"),
        Check(target="mlp", device="cpu", train=True, inputs="8x20"),
    ]
    assert "auto" in panel.form.inputs.placeholderText()


def test_the_device_is_where_the_model_is_or_else_the_first_gpu(qtbot: QtBot, sent: list[Command]) -> None:
    state = state_with(CPU, CUDA, VGPU)
    state.apply(ENGINE)
    show(state, mlp(), mlp("there", "vgpu:0"))
    panel = panel_for(qtbot, state, sent)
    assert [panel.form.device.itemText(at) for at in range(3)] == ["cuda:0", "vgpu:0 (simulated)", "cpu"]
    assert panel.form.device.value == "cuda:0"
    panel.set_selection(("there",))
    assert panel.form.device.value == "vgpu:0"
    panel.set_selection(("mlp",))
    assert panel.form.device.value == "cuda:0"
    panel.form.device.setFocus()
    qtbot.keyClick(panel.form.device, Qt.Key.Key_End)  # the user picks
    assert panel.form.device.value == "cpu"
    panel.set_selection(("there",))
    assert panel.form.device.value == "cpu"


def test_without_a_gpu_virtual_ones_are_offered(qtbot: QtBot, sent: list[Command]) -> None:
    state = state_with(CPU)
    state.apply(ENGINE)
    show(state, mlp())
    panel = panel_for(qtbot, state, sent)
    assert panel.form.hint.text() == ONLY_CPU
    qtbot.mouseClick(panel.form.offer_button, LEFT)
    assert sent == [AddVirtual(spec="2x Tesla T4")]
    assert panel.form.device.value == "cpu"
    panel.form.check()
    assert sent[-1] == Check(target="mlp", device="cpu")


def test_without_a_model_nothing_can_be_checked(qtbot: QtBot, state: State, sent: list[Command]) -> None:
    panel = hosted(qtbot, lambda _: DoctorPanel(state), 1264, 274)
    panel.command_requested.connect(sent.append)
    panel.set_selection(("x",))
    assert not panel.form.check_button.isEnabled()
    assert panel.form.check_button.toolTip() == NO_MODEL
    assert panel.form.model.full_text == "none is selected"
    panel.form.check()
    assert sent == []
    panel.set_selection(("x", "mlp:out.weight"))
    assert panel.form.model.full_text == "mlp"
    panel.set_selection(())  # what was chosen stays
    assert panel.form.model.full_text == "mlp"


def test_without_an_engine_nothing_can_be_checked(qtbot: QtBot, sent: list[Command]) -> None:
    state = state_with(CPU, VGPU)
    show(state, mlp())
    panel = panel_for(qtbot, state, sent)
    assert not panel.form.check_button.isEnabled()
    assert panel.form.check_button.toolTip() == "The engine is not ready yet."
    state.recording = "a recording"
    panel.refresh()
    assert panel.form.check_button.toolTip() == "This is a recording: nothing in it can be changed."


def test_a_check_under_way_says_how_it_goes_and_can_be_cancelled(
    qtbot: QtBot, panel: DoctorPanel, state: State, sent: list[Command]
) -> None:
    assert not panel.form.cancel_button.isVisible()
    begun(state, panel)
    assert panel.form.check_button.toolTip() == AT_WORK
    assert panel.nothing.text() == WORKING
    assert panel.form.going.full_text == "checking mlp"
    state.apply(JobProgress(request=7, done=0.4, text="forward on vgpu:0"))
    panel.refresh()
    assert panel.form.going.full_text == "forward on vgpu:0  40 %"
    qtbot.mouseClick(panel.form.check_button, LEFT)
    qtbot.mouseClick(panel.form.cancel_button, LEFT)
    assert sent == [Cancel(job=7)]
    state.apply(JobEnded(request=7, ok=False, time_unix_s=2.0))
    panel.refresh()
    assert not panel.form.cancel_button.isVisible()
    assert panel.form.check_button.isEnabled()


# --- what is listed ---------------------------------------------------------------------------------------------------


def test_problems_come_first_then_what_was_not_checked_then_notes(panel: DoctorPanel, state: State) -> None:
    say(state, panel, some())
    assert texts(panel) == [
        [
            "✕ error",
            "Tensor that is not registered",
            "hidden.scale",
            "net.py:6",
            "self.scale is a plain attribute: it stayed on cpu.",
        ],
        ["✕ error", "Operands on different devices", "—", "net.py:9", "linear got operands on two devices."],
        [
            "△ warning",
            "Hidden synchronisation",
            "out",
            "net.py:9",
            ".item() waits until vgpu:0 has done all its work.  × 3",
        ],
        ["○ not checked", "torch.cuda.Stream", "—", "net.py:12", "A virtual GPU has no streams."],
        ["• note", "Buffer that a checkpoint misses", "—", "—", "mask is not saved."],
    ]
    assert cells(panel)[0][PLACE].tip == f"{FILE}, line 6"
    words = "2 errors, 1 warning, 1 note; not checked: torch.cuda.Stream; 41 operations on vgpu:0 (simulated)"
    assert panel.verdict.full_text == words


@pytest.mark.parametrize(
    ("found", "sign", "words"),
    [
        (diagnosis(), "clean", "No problem; 41 operations on vgpu:0 (simulated)"),
        (
            diagnosis(device="cuda:0", simulated=False, operations=1),
            "clean",
            "No problem; 1 operation on cuda:0",
        ),
        (diagnosis(notes=(note(),)), "clean", "No problem, 1 note; 41 operations on vgpu:0 (simulated)"),
        (diagnosis(hidden_sync()), "warning", "1 warning; 41 operations on vgpu:0 (simulated)"),
        (
            diagnosis(unchecked=(Unchecked(what="the forward", reason="Nobody knows its input."),), operations=0),
            "not checked",
            "No problem found; not checked: the forward",
        ),
        (
            diagnosis(unchecked=tuple(Unchecked(what=what, reason="…") for what in "abb"), operations=2),
            "not checked",
            "No problem found; 2 items not checked; 2 operations on vgpu:0 (simulated)",
        ),
    ],
)
def test_the_verdict_is_one_line(found: Diagnosis, sign: str, words: str) -> None:
    assert sign_of(found) == sign
    assert all_of_it(found) == words


def test_what_was_not_checked_is_never_clean(qtbot: QtBot, panel: DoctorPanel, state: State) -> None:
    say(state, panel, diagnosis(unchecked=(Unchecked(what="the forward", reason="Nobody knows its input."),)))
    assert not panel.nothing.isVisible()
    assert texts(panel) == [["○ not checked", "the forward", "—", "—", "Nobody knows its input."]]
    click_row(qtbot, panel, 0, twice=True)
    assert panel.finding.title.text() == "Not checked: the forward"
    assert panel.finding.message.text() == "Nobody knows its input."
    assert not panel.finding.source.isVisible()
    assert not panel.finding.open_button.isVisible()
    assert not panel.finding.path_button.isVisible()


def test_a_check_that_came_to_nothing_says_why(
    qtbot: QtBot, panel: DoctorPanel, state: State, sent: list[Command]
) -> None:
    say(state, panel, some())
    begun(state, panel)
    offer = Offer("Add two virtual GPUs", AddVirtual(spec="2x Tesla T4"))
    state.apply(
        Answer(
            request=7,
            title="The model was not checked",
            words="It was not ready after 120 s.",
            failed=True,
            offers=(offer,),
        )
    )
    state.apply(JobEnded(request=7, ok=False, time_unix_s=2.0))
    panel.refresh()
    assert panel.failure.isVisible()
    assert panel.failure.words.text() == "It was not ready after 120 s."
    assert not panel.finding.isVisible()
    assert not panel.verdict.isVisible()
    qtbot.mouseClick(panel.failure.offers.buttons[0], LEFT)
    assert sent == [offer.command]
    begun(state, panel, request=8)
    state.apply(msgspec.structs.replace(Answer(title="mlp: 3 problems", words="…"), request=8))
    state.apply(JobEnded(request=8, ok=True, time_unix_s=3.0))
    panel.refresh()
    assert panel.table.isVisible()


def test_a_model_that_was_changed_since_is_said_to_be(panel: DoctorPanel, state: State) -> None:
    say(state, panel, some())
    assert panel.old.text() == ""
    show(state, mlp(device="vgpu:0", gradients=True))  # moved, and run backward
    panel.refresh()
    assert panel.old.text() == ""
    show(state, model("mlp", *mlp().rows[:4], module_row("out", 1, "Identity", ())))
    panel.refresh()
    assert panel.old.text() == OLD
    assert not state.diagnoses_that_hold, "the tree shows none of it"
    say(state, panel, diagnosis(note()))
    assert panel.old.text() == ""
    assert set(state.diagnoses_that_hold) == {"mlp"}


def test_what_a_rebuild_has_left_of_a_check_is_checked_again_once(
    panel: DoctorPanel, state: State, sent: list[Command]
) -> None:
    left = Unchecked(what=CHANGED, reason="It changed after this check; check again.")
    stale = diagnosis(note(), train=True, inputs="2x8", unchecked=(left,))
    say(state, panel, some())
    begun(state, panel)
    ended(state, panel, "It was not ready after 120 s.")
    assert panel.failure.isVisible()
    say(state, panel, stale)
    panel.refresh()
    assert sent == [Check(target="mlp", device=stale.device, train=True, inputs="2x8", quiet=True)]
    say(state, panel, some())
    assert panel.table.isVisible(), "a quiet check has no answer that ends the failure before it"
    show(state, mlp("other"))
    tell(state, msgspec.structs.replace(stale, target="other"))
    panel.refresh()
    panel.set_selection(("other",))
    assert len(sent) == 1, "it was not on screen when the other one was rebuilt"
    begun(state, panel)
    say(state, panel, msgspec.structs.replace(stale, inputs="4x8"))
    assert len(sent) == 1, "one check at a time"


# --- the finding ------------------------------------------------------------------------------------------------------


def test_the_chosen_finding_is_shown_in_full(qtbot: QtBot, panel: DoctorPanel, state: State) -> None:
    say(state, panel, some())
    shown = panel.finding
    assert shown.title.text() == "Tensor that is not registered"  # the first is chosen
    assert shown.fix.text() == "Make it a buffer."
    assert shown.source.line == 6
    assert shown.source.marked == CODE.lines[3]
    assert "buffer follows" in shown.rule.text()
    click_row(qtbot, panel, 2)
    assert shown.title.text() == "Hidden synchronisation"
    assert shown.cost.text() == "3 times in one pass; 4 B and 84 µs (simulated) each time."
    assert not shown.patch.isVisible()
    click_row(qtbot, panel, 4)
    assert not shown.source.isVisible()
    assert shown.no_source.text() == "No line of Python is to blame."


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, ""),
        ({"count": 12}, "12 times in one pass."),
        ({"bytes": 1 << 20}, "Costs 1.00 MiB."),
        ({"seconds": 0.002}, "Costs 2 ms."),
        ({"seconds": 0.002, "simulated": True}, "Costs 2 ms (simulated)."),
    ],
)
def test_what_a_finding_costs_is_said(more: dict[str, object], words: str) -> None:
    assert cost_text(finding(**more)) == words


def test_the_patch_can_be_copied(qtbot: QtBot, panel: DoctorPanel, state: State) -> None:
    say(state, panel, some())
    assert panel.finding.patch.isVisibleTo(panel)
    qtbot.mouseClick(panel.finding.patch.copy_button, LEFT)
    assert QGuiApplication.clipboard().text() == PATCH.rstrip("\n")


def line_is_in_view(panel: DoctorPanel) -> bool:
    source, area = panel.finding.source, panel.finding.viewport()
    return 0 < source.mapTo(area, source.line_rect().center()).y() < area.height()


def test_double_click_and_return_show_the_line_and_what_it_is_about(
    qtbot: QtBot, panel: DoctorPanel, state: State
) -> None:
    say(state, panel, some())
    chosen: list[tuple[str, str]] = []
    panel.target_chosen.connect(lambda name, path: chosen.append((name, path)))
    panel.resize(panel.width(), 200)
    QGuiApplication.processEvents()
    click_row(qtbot, panel, 0)
    panel.finding.verticalScrollBar().setValue(panel.finding.verticalScrollBar().maximum())
    assert not line_is_in_view(panel)
    click_row(qtbot, panel, 0, twice=True)
    assert chosen == [("mlp", "hidden.scale")]
    assert line_is_in_view(panel)
    panel.table.setFocus()
    qtbot.keyClick(panel.table, Qt.Key.Key_Down)
    qtbot.keyClick(panel.table, Qt.Key.Key_Return)
    assert chosen[-1] == ("mlp", "")
    qtbot.mouseClick(panel.finding.path_button, LEFT)
    assert chosen[-1] == ("mlp", "")
    panel.table.selectRow(3)
    qtbot.keyClick(panel.table, Qt.Key.Key_Return)
    assert len(chosen) == 3  # what was not checked is nowhere in the tree


class Editor(QObject):
    """A fake of the desktop's file opener."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[QUrl] = []

    @Slot(QUrl)
    def open(self, url: QUrl) -> None:
        self.opened.append(url)


def test_the_file_opens_in_the_editor(qtbot: QtBot, panel: DoctorPanel, state: State, tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("pass\n")
    say(state, panel, diagnosis(finding(file=str(file)), finding(file=str(tmp_path / "gone.py"))))
    editor = Editor()
    QDesktopServices.setUrlHandler("file", editor, "open")
    try:
        qtbot.mouseClick(panel.finding.open_button, LEFT)
    finally:
        QDesktopServices.unsetUrlHandler("file")
    assert editor.opened == [QUrl.fromLocalFile(str(file))]
    click_row(qtbot, panel, 1)
    assert not panel.finding.open_button.isEnabled()
    assert panel.finding.open_button.toolTip() == f"{tmp_path}/gone.py is not on this machine."


def test_a_finding_of_another_model_can_be_brought_to_the_front(panel: DoctorPanel, state: State) -> None:
    show(state, mlp("other"))
    say(state, panel, some())
    tell(state, diagnosis(hidden_sync(), target="other"))
    panel.show_finding("other", 0)
    assert panel.form.model.full_text == "other"
    assert panel.finding.title.text() == "Hidden synchronisation"
    panel.show_finding("other", 5)  # there is none
    assert panel.finding.title.text() == "Hidden synchronisation"


# --- what belongs to which model, and what has room -------------------------------------------------------------------


def ended(state: State, panel: DoctorPanel, words: str, request: int = 7, *, cancelled: bool = False) -> None:
    answer = Answer(request=request, title="The model was not checked", words=words, failed=True, cancelled=cancelled)
    state.apply(answer)
    state.apply(JobEnded(request=request, ok=False, time_unix_s=2.0))
    panel.refresh()


def test_a_failure_goes_with_its_model(panel: DoctorPanel, state: State) -> None:
    begun(state, panel)
    ended(state, panel, "It was not ready after 120 s.")
    assert panel.failure.isVisible()
    state.apply(ObjectRemoved(name="mlp"))
    panel.refresh()
    show(state, mlp())  # another one of the same name
    panel.set_selection(("mlp",))
    assert not panel.failure.isVisible()
    assert panel.nothing.text() == NOTHING


def test_a_check_that_was_cancelled_leaves_what_was_known(panel: DoctorPanel, state: State) -> None:
    say(state, panel, some())
    begun(state, panel)
    assert panel.nothing.text() == WORKING
    assert panel.nothing.isVisible()
    assert not panel.verdict.isVisible(), "the verdict before may be wrong now"
    assert not panel.finding.isVisible()
    ended(state, panel, "It was ended.", cancelled=True)
    assert panel.table.isVisible()
    assert panel.verdict.isVisible()


def test_a_check_of_another_model_is_not_taken_for_one_of_this(panel: DoctorPanel, state: State) -> None:
    show(state, mlp("other"))
    begun(state, panel, Check(target="other", device="vgpu:0"))
    state.apply(JobProgress(request=7, done=0.5, text="a forward"))
    panel.refresh()
    assert panel.nothing.text() == NOTHING
    assert panel.form.going.full_text == "other: a forward  50 %"
    panel.set_selection(("other",))
    assert panel.nothing.text() == WORKING
    assert panel.form.going.full_text == "a forward  50 %"


@pytest.mark.parametrize(
    ("width", "hidden"), [(680, [RULE, PATH, PLACE]), (1264, [RULE, PATH]), (1560, [RULE]), (1900, [])]
)
def test_the_sentences_have_the_room_and_other_columns_what_is_left(
    qtbot: QtBot, state: State, sent: list[Command], width: int, hidden: list[int]
) -> None:
    panel = panel_for(qtbot, state, sent, width=width)
    say(state, panel, some())
    QGuiApplication.processEvents()
    assert [column for column in range(5) if panel.table.isColumnHidden(column)] == hidden
    assert panel.table.columnWidth(4) >= (300 if width > 1000 else 100)
    assert panel.table.horizontalScrollBar().maximum() == 0
    assert panel.finding.place.full_text == "net.py:6 · hidden.scale"  # where the table has no room for it


def test_a_patch_for_the_users_file_can_be_applied_and_one_for_a_sample_cannot(
    qtbot: QtBot, panel: DoctorPanel, state: State
) -> None:
    asked: list[ApplyPatch] = []
    panel.patch_requested.connect(asked.append)
    say(state, panel, diagnosis(finding("a", patch=PATCH), inputs="2x8", train=True))
    button = panel.finding.apply_button
    assert not button.isEnabled()
    assert button.toolTip() == "A file of DevExplorer itself is not changed."
    say(state, panel, diagnosis(finding("a", patch=PATCH, digest="ab"), inputs="2x8", train=True))
    assert button.isEnabled()
    qtbot.mouseClick(button, LEFT)
    again = Check(target="mlp", device=panel.diagnosis.device, train=True, inputs="2x8") if panel.diagnosis else None
    assert asked == [ApplyPatch(file=FILE, patch=PATCH, digest="ab", again=again)]  # type: ignore[arg-type]
    for ok in (False, True):
        begun(state, panel, asked[0])
        state.apply(JobEnded(request=7, ok=ok, time_unix_s=2.0))
        panel.refresh()
        assert (button.text(), button.isEnabled()) == (("Patch applied", False) if ok else ("Apply patch…", True))
    begun(state, panel, asked[0].again)
    state.apply(JobEnded(request=7, ok=True, time_unix_s=3.0))
    panel.refresh()
    assert button.isEnabled(), "the file is as it was, if another check says so again"
    say(state, panel, diagnosis(finding("a")))
    assert not button.isVisible()
