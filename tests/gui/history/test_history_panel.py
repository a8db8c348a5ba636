"""The history tab: every stored run is found, tagged, compared, deleted, exported by clicks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fakes.host import hosted
from fakes.look_records import state_with
from fakes.stored_runs import H200, HERE_CPU, T4, bandwidth, fifty, matmul, model_run, scaling, spread, stored, sweep
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QLineEdit
from pytestqt.qtbot import QtBot

from devexplorer.core.benchmark.kind import kind_name, kind_of
from devexplorer.core.history.filter import Filter, search_text
from devexplorer.core.history.store import Store
from devexplorer.core.history.store_thread import Say, StoreThread
from devexplorer.core.records import StoredRun
from devexplorer.core.session.state import State
from devexplorer.gui.history.page import HistoryPanel
from devexplorer.gui.history.rows import COLUMNS, TAGS, history_row

LEFT = Qt.MouseButton.LeftButton
COLUMN = {column.title: number for number, column in enumerate(COLUMNS)}


def _is_wanted(run: StoredRun, kind: str | None, text: str) -> bool:
    return kind in (None, kind_name(run.result)) and all(word in search_text(run) for word in text.casefold().split())


class FakeSource:
    """Keeps runs in a list and answers at once."""

    def __init__(self, runs: Sequence[StoredRun] = ()) -> None:
        self.runs = list(runs)
        self.asked: list[tuple[Filter, int]] = []
        self.exported: list[tuple[str, Path, tuple[int, ...], bool]] = []
        self.imported: list[Path] = []
        self.panel: HistoryPanel | None = None
        self.fails = ""

    def request(
        self, kind: str | None, text: str, limit: int, show: Callable[[Sequence[StoredRun], int], None]
    ) -> None:
        wanted = Filter(kind=kind, text=text)
        self.asked.append((wanted, limit))
        found = [run for run in self.runs if _is_wanted(run, kind, text)]
        show(found[:limit], len(found))

    def tag(self, tags: Sequence[tuple[int, tuple[str, ...]]], say: Say) -> None:
        if self.fails:
            say(self.fails, True)
            return
        wanted = dict(tags)
        self.runs = [msgspec.structs.replace(run, tags=wanted.get(run.id, run.tags)) for run in self.runs]
        self._changed()

    def delete(self, ids: Sequence[int], say: Say) -> None:
        self.runs = [run for run in self.runs if run.id not in ids]
        say(f"{len(ids)} runs deleted from the history.", False)
        self._changed()

    def export(self, kind: str, path: Path, ids: Sequence[int], *, names: bool, say: Say) -> None:
        self.exported.append((kind, path, tuple(ids), names))
        say(f"{len(ids)} runs are in {path}.", False)

    def import_file(self, path: Path, say: Say) -> None:
        self.imported.append(path)
        say(f"{path.name} is no export of DevExplorer.", True)

    def _changed(self) -> None:
        assert self.panel is not None
        self.panel.refresh()


class FakeContext:
    """Keeps what a file is wanted for."""

    suffix = ""
    chosen: Callable[[Path], None]

    def save_file(
        self, _title: str, _name: str, formats: dict[str, str], chosen: Callable[[Path], None], *, here: object
    ) -> None:
        [self.suffix] = formats
        self.chosen = chosen

    def in_background(self, _name: str, work: Callable[[], Any], show: Callable[[Any], None]) -> None:
        show(work())

    def choose_files(self, _title: str, _kinds: str, chosen: Callable[[list[Path]], None]) -> None:
        self.chosen = lambda path: chosen([path])


def here() -> State:
    return state_with(HERE_CPU, H200, T4)


def panel_with(qtbot: QtBot, *runs: StoredRun, width: int = 1264, height: int = 280) -> tuple[HistoryPanel, FakeSource]:
    panel = hosted(qtbot, lambda _: HistoryPanel(here()), width, height)
    source = FakeSource(runs)
    source.panel = panel
    panel.context = FakeContext()  # type: ignore[assignment]
    panel.set_source(source)
    QApplication.processEvents()
    return panel, source


def cells(panel: HistoryPanel, row: int = 0) -> dict[str, str]:
    return {column.title: cell.text for column, cell in zip(COLUMNS, panel.model.row(row).cells, strict=True)}


def click_row(
    qtbot: QtBot, panel: HistoryPanel, row: int, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
) -> None:
    place = panel.table.visualRect(panel.model.index(row, 1)).center()
    qtbot.mouseClick(panel.table.viewport(), LEFT, modifier, place)


# --- what is listed ---------------------------------------------------------------------------------------------------


def test_without_a_run_the_panel_says_so_and_offers_a_benchmark(qtbot: QtBot) -> None:
    panel, _ = panel_with(qtbot)
    assert panel.empty.isVisible()
    assert "No runs yet" in panel.empty.sentence.text()
    assert not panel.export_button.isEnabled()
    assert panel.import_button.isEnabled()
    with qtbot.waitSignal(panel.benchmark_requested):
        qtbot.mouseClick(panel.empty.button, LEFT)


def test_a_run_is_listed_with_its_conditions_and_what_it_is_worth(qtbot: QtBot) -> None:
    panel, _ = panel_with(
        qtbot, stored(matmul(798.0), 7, tags=("before", "driver-570"), throttle_reasons=("power cap",))
    )
    found = cells(panel)
    assert (found["kind"], found["device"], found["what"], found["dtype"]) == (
        "matmul",
        "cuda:0",
        "8192×8192×8192",
        "bfloat16",
    )
    assert (found["median"], found[""]) == ("798", "TFLOP/s")
    assert (found["% of datasheet"], found["% of best"], found["noise %"]) == ("81", "94", "0.9")
    assert (found["MHz"], found["W"], found["°C"]) == ("1,755", "612", "64")
    assert (found["remarks"], found["tags"]) == ("▲ power cap", "before, driver-570")
    assert panel.model.row(0).cells[COLUMN["device"]].colour == 0
    conditions = panel.model.row(0).cells[COLUMN["when"]].tip
    assert "driver: 570.124.06" in conditions
    assert "power cap: 700 W" in conditions
    assert "threads" not in conditions, "unknown values are not listed"


def test_every_kind_of_run_has_its_own_figure(qtbot: QtBot) -> None:
    runs = [stored(result, number) for number, result in enumerate((bandwidth(), sweep(), scaling(), model_run()), 1)]
    panel, _ = panel_with(qtbot, *runs)
    listed = [(found["kind"], found["what"], found[""]) for found in (cells(panel, row) for row in range(4))]
    assert listed == [
        ("bandwidth", "cuda:0 → cuda:0, 1 of 6", "GB/s"),
        ("sweep", "8192×8192×8192, the best", "TFLOP/s"),
        ("scaling", "1,000 × 1000³ on 2 devices", "times"),
        ("model", "vgg16-bn, train with adamw, batch 32, autocast bfloat16", "samples/s"),
    ]
    assert (cells(panel, 0)["median"], cells(panel, 0)["% of datasheet"]) == ("2,092", "87")
    tip = panel.model.row(0).cells[COLUMN["% of datasheet"]].tip
    assert "2,400 GB/s" in tip
    assert "reads and writes every byte" in tip, "the memory has 4,800"
    assert cells(panel, 2)["median"] == "1.94"
    assert cells(panel, 0)["dtype"] == "—"


def test_simulated_runs_are_marked_and_have_no_readings(qtbot: QtBot) -> None:
    panel, _ = panel_with(qtbot, stored(matmul(23.4, 4096, "float16", T4), 1, T4))
    found = cells(panel)
    assert found["device"] == "vgpu:0  simulated"
    assert (found["MHz"], found["W"], found["°C"]) == ("—", "—", "—")
    assert panel.model.row(0).cells[COLUMN["W"]].tip == "not modelled"


def test_an_error_is_shown_in_words_and_in_colour(qtbot: QtBot) -> None:
    wrong = stored(matmul(verified=False), 1)
    lost = stored(matmul(stopped=True, failure="the device was lost"), 2)
    stopped = stored(matmul(stopped=True), 3, imported=True)
    panel, _ = panel_with(qtbot, wrong, lost, stopped)
    remarks = [panel.model.row(row).cells[COLUMN["remarks"]] for row in range(3)]
    assert [cell.text for cell in remarks] == [
        "✕ values are wrong",
        "▲ ended early: the device was lost",
        "stopped, imported",
    ]
    assert [cell.colour for cell in remarks] == ["error", "warning", "dim"]


def test_the_speed_of_data_that_arrived_wrong_is_no_headline() -> None:
    found = bandwidth()
    slow, fast = (
        msgspec.structs.replace(found.rows[0], gb_per_s=spread(rate), verified=rate < 100) for rate in (20.0, 900.0)
    )
    result = msgspec.structs.replace(found, rows=(slow, fast), verified=False)
    assert kind_of(result).headline(result).spread == slow.gb_per_s
    assert kind_of(result).headline(msgspec.structs.replace(result, rows=(fast,))).spread is None


def test_equal_runs_of_copies_are_known_by_the_same_pair() -> None:
    found = bandwidth()
    faster = tuple(
        msgspec.structs.replace(row, source="cuda:1", destination="cuda:1", gb_per_s=spread(9000.0))
        for row in found.rows
    )
    result = msgspec.structs.replace(found, rows=(*faster, *found.rows))
    kind = kind_of(result)
    assert kind.headline(result).spread == found.rows[-1].gb_per_s
    assert kind.subject(result) == "cuda:0 → cuda:0, 1 of 12"
    assert kind.subject_tip(result) == "256 MiB cuda:0 → cuda:0, of 12 copies"
    to_it = msgspec.structs.replace(result, rows=(*faster, *found.rows[:3]))
    assert kind.subject(to_it) == "cpu → cuda:0, 1 of 9"
    elsewhere = msgspec.structs.replace(result, rows=faster)
    assert kind.subject(elsewhere) == "cuda:1 → cuda:1, 1 of 6"


def test_a_device_that_is_not_here_has_no_device_colour(qtbot: QtBot) -> None:
    elsewhere = stored(matmul(), 1, imported=True, uuid=None)
    other_card = stored(matmul(), 2, uuid="GPU-ffffffff-1111-2222-3333-444444444444")
    panel, _ = panel_with(qtbot, elsewhere, other_card)
    assert cells(panel)["device"] == "NVIDIA H200", "the number of somebody else's card says nothing here"
    assert [panel.model.row(row).cells[COLUMN["device"]].colour for row in range(2)] == ["dim", "dim"]
    same_card, _ = panel_with(qtbot, stored(matmul(), 3, imported=True))
    assert same_card.model.row(0).cells[COLUMN["device"]].colour == 0, "the UUID says that it is this card"


def test_rows_are_made_when_they_are_looked_at(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(
        "devexplorer.gui.history.rows.history_row", lambda run, *more: made.append(run.id) or history_row(run, *more)
    )
    runs = [stored(matmul(), number) for number in range(200, 0, -1)]
    panel, _ = panel_with(qtbot, *runs)
    assert panel.model.rowCount() == 200
    assert 0 < len(set(made)) < 80


def test_more_than_a_page_is_listed_when_asked_for(qtbot: QtBot) -> None:
    panel, source = panel_with(qtbot, *(stored(matmul(), number) for number in range(230, 0, -1)))
    assert panel.model.rowCount() == 200
    assert panel.count.full_text == "200 of 230 runs"
    assert panel.more_button.text() == "Show 30 more of 230"
    qtbot.mouseClick(panel.more_button, LEFT)
    assert panel.model.rowCount() == 230
    assert not panel.more_button.isVisible()
    assert source.asked[-1][1] == 400


def test_a_hidden_panel_asks_for_nothing_until_it_is_shown(qtbot: QtBot) -> None:
    panel, source = panel_with(qtbot, stored(matmul(), 1))
    panel.hide()
    source.runs.insert(0, stored(matmul(), 2))
    count = len(source.asked)
    panel.refresh()
    panel.refresh()
    assert len(source.asked) == count
    panel.show()
    assert len(source.asked) == count + 1
    assert panel.model.rowCount() == 2


def test_a_run_that_ends_is_at_the_top_and_leaves_the_selection_alone(qtbot: QtBot) -> None:
    panel, source = panel_with(qtbot, *(stored(matmul(), number) for number in (3, 2, 1)))
    click_row(qtbot, panel, 1)
    assert [run.id for run in panel.table.chosen] == [2]
    source.runs.insert(0, stored(matmul(), 4))
    panel.refresh()
    assert [run.id for run in panel.model.runs] == [4, 3, 2, 1]
    assert [run.id for run in panel.table.chosen] == [2]
    source.runs = source.runs[1:3]
    panel.refresh()
    assert [run.id for run in panel.table.chosen] == [2]


# --- finding ----------------------------------------------------------------------------------------------------------


def test_typing_filters_once_after_a_pause(qtbot: QtBot) -> None:
    panel, source = panel_with(qtbot, *fifty())
    count = len(source.asked)
    qtbot.keyClicks(panel.filter, "tesla float16")
    assert len(source.asked) == count, "not for every letter"
    qtbot.waitUntil(lambda: len(source.asked) > count)
    assert source.asked[-1][0] == Filter(text="tesla float16")
    assert len(source.asked) == count + 1
    assert panel.model.runs
    assert all(run.conditions.device_name == "Tesla T4" for run in panel.model.runs)


def test_return_filters_at_once_and_a_kind_can_be_chosen(qtbot: QtBot) -> None:
    panel, source = panel_with(qtbot, *fifty())
    qtbot.keyClicks(panel.filter, "nobody")
    qtbot.keyClick(panel.filter, Qt.Key.Key_Return)
    assert panel.nothing.isVisible()
    assert panel.nothing.text().startswith("No runs match")
    assert panel.filter.text() == "nobody"
    panel.filter.clear()
    panel.kind.setFocus()
    qtbot.keyClick(panel.kind, Qt.Key.Key_Down)
    assert source.asked[-1][0] == Filter(kind="matmul")
    assert {cells(panel, row)["kind"] for row in range(panel.model.rowCount())} == {"matmul"}


def test_a_run_that_is_asked_for_elsewhere_is_found_behind_any_filter(qtbot: QtBot) -> None:
    panel, _ = panel_with(qtbot, *(stored(matmul(), number) for number in range(300, 0, -1)))
    panel.show_run(290)
    assert [run.id for run in panel.table.chosen] == [290]
    panel.kind.setCurrentIndex(3)
    assert panel.nothing.isVisible()
    panel.show_run(12)
    assert [run.id for run in panel.table.chosen] == [12]
    assert panel.kind.currentIndex() == 0
    shown = panel.table.visualRect(panel.model.index(288, 0))
    assert panel.table.viewport().rect().contains(shown.center())


# --- changing ---------------------------------------------------------------------------------------------------------


def test_tags_are_edited_in_place_by_a_double_click(qtbot: QtBot) -> None:
    panel, source = panel_with(qtbot, stored(matmul(), 2), stored(matmul(), 1, tags=("old",)))
    place = panel.table.visualRect(panel.model.index(1, TAGS)).center()
    qtbot.mouseClick(panel.table.viewport(), LEFT, pos=place)
    qtbot.mouseDClick(panel.table.viewport(), LEFT, pos=place)
    editor = panel.table.findChild(QLineEdit)
    assert editor is not None
    assert editor.text() == "old"
    editor.selectAll()
    qtbot.keyClicks(editor, "nightly,  after ,")
    qtbot.keyClick(editor, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: source.runs[1].tags == ("nightly", "after"))
    assert cells(panel, 1)["tags"] == "nightly, after"


def test_f2_edits_and_escape_changes_nothing(qtbot: QtBot) -> None:
    panel, source = panel_with(qtbot, stored(matmul(), 1, tags=("old",)))
    click_row(qtbot, panel, 0)
    qtbot.keyClick(panel.table, Qt.Key.Key_F2)
    editor = panel.table.findChild(QLineEdit)
    assert editor is not None
    qtbot.keyClicks(editor, "new")
    qtbot.keyClick(editor, Qt.Key.Key_Escape)
    assert source.runs[0].tags == ("old",)


def test_the_button_changes_the_tags_of_one_run(qtbot: QtBot) -> None:
    panel, source = panel_with(qtbot, stored(matmul(), 1, tags=("old",)))
    assert not panel.tags_button.isEnabled()
    click_row(qtbot, panel, 0)
    qtbot.mouseClick(panel.tags_button, LEFT)
    assert panel.question.isVisible()
    assert panel.question.edit.text() == "old"
    qtbot.keyClicks(panel.question.edit, "new")  # what was there is selected, and replaced
    qtbot.keyClick(panel.question.edit, Qt.Key.Key_Return)
    assert not panel.question.isVisible()
    assert source.runs[0].tags == ("new",)


def test_several_runs_get_tags_added(qtbot: QtBot) -> None:
    panel, source = panel_with(qtbot, stored(matmul(), 2, tags=("a",)), stored(matmul(), 1))
    click_row(qtbot, panel, 0)
    click_row(qtbot, panel, 1, Qt.KeyboardModifier.ControlModifier)
    qtbot.mouseClick(panel.tags_button, LEFT)
    qtbot.keyClicks(panel.question.edit, "a, b")
    qtbot.mouseClick(panel.question.yes, LEFT)
    assert [run.tags for run in source.runs] == [("a", "b"), ("a", "b")]


def test_deleting_is_asked_about_and_return_does_not_do_it(qtbot: QtBot) -> None:
    panel, source = panel_with(qtbot, *(stored(matmul(), number) for number in (3, 2, 1)))
    click_row(qtbot, panel, 0)
    click_row(qtbot, panel, 1, Qt.KeyboardModifier.ShiftModifier)
    assert panel.delete_button.text() == "Delete 2…"
    qtbot.mouseClick(panel.delete_button, LEFT)
    assert panel.question.words.text() == "Delete 2 runs from the history? They cannot be brought back."
    assert panel.question.no.hasFocus()
    qtbot.keyClick(panel.question.no, Qt.Key.Key_Return)
    assert not panel.question.isVisible()
    assert len(source.runs) == 3
    qtbot.mouseClick(panel.delete_button, LEFT)
    qtbot.mouseClick(panel.question.yes, LEFT)
    assert [run.id for run in panel.model.runs] == [1]
    assert panel.message.full_text == "2 runs deleted from the history."
    assert not panel.delete_button.isEnabled()


# --- comparing --------------------------------------------------------------------------------------------------------


def test_compare_says_what_it_needs(qtbot: QtBot) -> None:
    panel, _ = panel_with(qtbot, stored(bandwidth(), 3), stored(matmul(), 2), stored(matmul(), 1))
    assert panel.compare_button.toolTip() == "Choose at least two runs to compare"
    click_row(qtbot, panel, 0)
    click_row(qtbot, panel, 1, Qt.KeyboardModifier.ControlModifier)
    assert not panel.compare_button.isEnabled()
    assert "measure different things" in panel.compare_button.toolTip()


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "json", "html"])
def test_the_chosen_runs_are_exported_without_names_until_asked_for(qtbot: QtBot, kind: str, tmp_path: Path) -> None:
    panel, source = panel_with(qtbot, *(stored(matmul(), number) for number in (3, 2, 1)))
    click_row(qtbot, panel, 1)
    action = panel.export_menu.actions()[["csv", "json", "html"].index(kind)]
    action.trigger()
    assert panel.context.suffix == kind  # type: ignore[attr-defined]
    panel.context.chosen(tmp_path / f"runs.{kind}")  # type: ignore[attr-defined]
    assert source.exported == [(kind, tmp_path / f"runs.{kind}", (2,), False)]
    panel.show_problem("")  # as after every request
    assert panel.message.full_text == f"1 runs are in {tmp_path / f'runs.{kind}'}."


def test_a_report_of_no_runs_asks_for_no_file(qtbot: QtBot) -> None:
    panel, source = panel_with(qtbot)
    panel.report()
    assert panel.message.full_text == "✕ There is no run to export."
    source.runs = [stored(matmul(), 1)]  # not listed yet
    panel.report()
    panel.context.chosen(Path("runs.html"))  # type: ignore[attr-defined]
    assert source.exported == [("html", Path("runs.html"), (1,), False)]


def test_rows_can_be_copied(qtbot: QtBot) -> None:
    panel, _ = panel_with(qtbot, stored(matmul(), 2), stored(matmul(), 1))
    click_row(qtbot, panel, 0)
    qtbot.keyClick(panel.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    head, line = QApplication.clipboard().text().splitlines()
    assert head.split("\t")[:3] == ["when", "kind", "device"]
    assert "8192×8192×8192" in line


def test_what_does_not_work_stays_in_sight(qtbot: QtBot) -> None:
    panel, _ = panel_with(qtbot, stored(matmul(), 1))
    panel.show_problem("The history is locked by another process.")
    assert panel.message.full_text.startswith("▲ The history is locked")
    assert panel.message.property("words") == "warning"
    click_row(qtbot, panel, 0)
    qtbot.mouseClick(panel.tags_button, LEFT)
    qtbot.mouseClick(panel.question.yes, LEFT)
    assert panel.message.full_text.startswith("▲ The history is locked"), "an answer does not hide it for good"
    panel.show_problem("")
    assert not panel.message.full_text


# --- with the real store ----------------------------------------------------------------------------------------------


@pytest.fixture
def run_recorder(tmp_path: Path) -> Iterator[StoreThread]:
    thread = StoreThread(
        SimpleNamespace(on_run=[]),  # type: ignore[arg-type]
        lambda: Store(tmp_path / "history.sqlite3"),
        on_change=lambda: None,
        on_notice=lambda message, failed: pytest.fail(message),
    )
    yield thread
    assert thread.close()


def test_the_whole_way_with_a_real_history(qtbot: QtBot, run_recorder: StoreThread, tmp_path: Path) -> None:
    panel = hosted(qtbot, lambda _: HistoryPanel(here()), 1264, 280)
    panel.context = FakeContext()  # type: ignore[assignment]
    run_recorder.on_change = panel.refresh
    panel.set_source(run_recorder)

    def until(true: Callable[[], bool]) -> None:
        qtbot.waitUntil(lambda: run_recorder.deliver() >= 0 and true())

    until(panel.empty.isVisible)
    for number, median in enumerate((798.0, 823.0, 811.0), 1):
        run = stored(matmul(median), number)
        run_recorder.add(run.result, run.conditions)
    until(lambda: [cells(panel, row)["median"] for row in range(panel.model.rowCount())] == ["811", "823", "798"])
    click_row(qtbot, panel, 2)
    qtbot.mouseClick(panel.tags_button, LEFT)
    qtbot.keyClicks(panel.question.edit, "before")
    qtbot.mouseClick(panel.question.yes, LEFT)
    until(lambda: cells(panel, 2)["tags"] == "before")
    click_row(qtbot, panel, 1, Qt.KeyboardModifier.ControlModifier)
    qtbot.mouseClick(panel.compare_button, LEFT)
    dialog = panel.comparing
    assert dialog is not None
    until(lambda: dialog.comparison is not None)
    assert dialog.comparison is not None
    assert dialog.comparison.rows[0].cells[1].words == "3.1 % faster, more than the noise of either run"
    dialog.close()
    panel.export_menu.actions()[1].trigger()
    panel.context.chosen(tmp_path / "runs.json")  # type: ignore[attr-defined]
    until(lambda: (tmp_path / "runs.json").exists() and panel.message.full_text.startswith("2 runs written to"))
    assert b"gpu-7" not in (tmp_path / "runs.json").read_bytes(), "the name of the host is left out until asked for"
    qtbot.mouseClick(panel.delete_button, LEFT)
    qtbot.mouseClick(panel.question.yes, LEFT)
    until(lambda: panel.model.rowCount() == 1)
    qtbot.mouseClick(panel.import_button, LEFT)
    panel.context.chosen(tmp_path / "runs.json")  # type: ignore[attr-defined]
    until(lambda: panel.model.rowCount() == 3)
    assert sorted(cells(panel, row)["remarks"] for row in range(3)) == ["", "imported", "imported"]
