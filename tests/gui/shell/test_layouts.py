"""The layouts of the window: how they are switched, what they show, how much room the plots have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fakes.look_records import CPU, MEASURED, VGPU
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import QEvent, QObject, QPoint, QRect, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.feature import features
from devexplorer.core.records import DeviceInfo, DeviceSample
from devexplorer.core.session.settings import Settings, SettingsFile
from devexplorer.gui.actions.palette import CommandPalette
from devexplorer.gui.forms.glossary import GlossaryDialog
from devexplorer.gui.shell.layouts import LAYOUTS, LOW_PX, SLACK_PX
from devexplorer.gui.shell.main_window import TABS
from devexplorer.gui.timelines.export import ExportDialog

CARD = DeviceInfo(id="nvml:0", kind="nvml", name="NVIDIA A10", memory_total_bytes=24 << 30)
READING = DeviceSample(
    device="nvml:0", time_unix_s=1_700_000_000.0, utilization_percent=97, temperature_c=81, power_w=148.6,
    power_cap_w=150, sm_clock_mhz=1410, memory_clock_mhz=6251, fan_percent=55,
    throttle_reasons=("power cap (software)",),
)  # fmt: skip


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> Iterator[QuietWindow]:
    quiet = QuietWindow(qapp, tmp_path, CARD)
    yield quiet
    quiet.close()


def shown(quiet: QuietWindow) -> str:
    return quiet.window.workbench.layout_shown.name


def tabs(quiet: QuietWindow) -> list[str]:
    tabs = quiet.window.bottom_dock.tabs
    return [tabs.tabText(at) for at in range(tabs.count()) if tabs.isTabVisible(at)]


def there(*titles: str) -> list[str]:
    """Those of the tabs that the program has: features can be out."""
    return [title for title in titles if title in {spec.title for spec in TABS}]


def test_every_tab_has_a_layout_and_none_has_more_than_six_of_its_own() -> None:
    names = {layout.name for layout in LAYOUTS}
    assert {spec.layout for spec in TABS} <= {"", *names}
    for layout in LAYOUTS:
        own = {spec.name for spec in TABS if spec.is_in(layout.name)}
        assert 1 <= len(own - {layout.name}) <= 6, layout.name


def test_the_rail_and_its_keys_switch_and_each_layout_has_its_tabs(quiet: QuietWindow) -> None:
    window = quiet.window
    assert shown(quiet) == "explore"
    assert tabs(quiet) == there("Values", "Split", "Doctor", "Fit", "Script")
    QTest.mouseClick(window.rail.buttons["measure"], Qt.MouseButton.LeftButton)
    assert shown(quiet) == "measure"
    assert tabs(quiet) == there("Benchmark", "History", "Roofline", "Experiments")
    assert window.memory.isVisible()
    assert not window.objects.isVisible()
    window.activateWindow()
    QTest.keyClick(window, Qt.Key.Key_3, Qt.KeyboardModifier.AltModifier)
    assert shown(quiet) == "monitor"
    assert tabs(quiet) == there("Device", "Memory", "Processes", "Topology", "Alerts", "Script")
    assert window.workbench.cards.isVisible()
    if "learn" in features():
        QTest.keyClick(window, Qt.Key.Key_4, Qt.KeyboardModifier.AltModifier)
        assert shown(quiet) == "learn"
        assert window.bottom_dock.areas["learn"].isVisible()
        assert window.objects.isVisible()
    QTest.keyClick(window, Qt.Key.Key_1, Qt.KeyboardModifier.AltModifier)
    assert window.objects.isVisible()
    assert window.rail.buttons["explore"].isChecked()


def test_a_page_is_shown_in_the_layout_that_has_it_and_a_layout_has_its_last_page_again(quiet: QuietWindow) -> None:
    pytest.importorskip("devexplorer.gui.parameters")
    dock, workbench = quiet.window.bottom_dock, quiet.window.workbench
    dock.show_page("values")
    assert shown(quiet) == "explore"
    dock.show_page("benchmark")
    assert (shown(quiet), dock.current) == ("measure", "benchmark")
    workbench.show_layout("explore")
    assert dock.current == "values"
    workbench.show_layout("measure")
    assert dock.current == "benchmark"


def test_the_session_and_the_log_are_in_a_window_of_their_own_from_everywhere(quiet: QuietWindow) -> None:
    pytest.importorskip("devexplorer.gui.files")
    window, dock = quiet.window, quiet.window.bottom_dock
    for layout in LAYOUTS:
        window.workbench.show_layout(layout.name)
        QTest.mouseClick(window.status.session, Qt.MouseButton.LeftButton)
        quiet.settle()
        assert dock.apart.isVisible()
        assert not dock.apart.isModal()
        assert (shown(quiet), dock.page("session").isVisible()) == (layout.name, True)
        QTest.keyClick(dock.apart, Qt.Key.Key_Escape)
        assert not dock.apart.isVisible()
    window.actions_by_id["page log"].trigger()
    quiet.settle()
    assert dock.page("log").isVisible()
    assert not dock.page("session").isVisible()


class Sizes(QObject):
    """How often each of `panels` gets another size."""

    def __init__(self, *panels: QWidget) -> None:
        super().__init__()
        self.count: Counter[QObject] = Counter()
        for panel in panels:
            panel.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        self.count[watched] += event.type() == QEvent.Type.Resize
        return False


def test_a_panel_that_moves_to_another_layout_is_laid_out_once(quiet: QuietWindow) -> None:
    window = quiet.window
    sizes = Sizes(window.objects, window.inspector, window.memory, window.throughput, window.bottom_dock)
    for layout in (*LAYOUTS[1:], LAYOUTS[0]):
        sizes.count.clear()
        window.workbench.show_layout(layout.name)
        quiet.settle()
        assert max(sizes.count.values()) == 1, layout.name


class Upheaval(QObject):
    """What makes Qt style or show a panel anew, with everything in it."""

    KINDS = (QEvent.Type.StyleChange, QEvent.Type.ParentChange, QEvent.Type.Show, QEvent.Type.Hide)

    def __init__(self, *panels: QWidget) -> None:
        super().__init__()
        self.met: Counter[tuple[QEvent.Type, str]] = Counter()
        for panel in panels:
            for widget in (panel, *panel.findChildren(QWidget)):
                widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in self.KINDS and not watched.objectName().startswith("qt_"):
            self.met[event.type(), type(watched).__name__] += 1
        return False


def test_panels_that_stay_on_show_are_neither_styled_nor_hidden_by_another_layout(quiet: QuietWindow) -> None:
    pytest.importorskip("devexplorer.gui.learn")
    window = quiet.window
    window.workbench.show_layout("learn")
    quiet.settle()
    upheaval = Upheaval(window.objects, window.inspector, window.memory)
    for layout in ("explore", "learn"):
        window.workbench.show_layout(layout)
        quiet.settle()
    assert window.inspector.isVisible()
    assert not upheaval.met
    window.workbench.show_layout("monitor")
    quiet.settle()
    assert not window.inspector.isVisible()
    styled = {kind for kind, _ in upheaval.met} & {QEvent.Type.StyleChange, QEvent.Type.ParentChange}
    assert not styled, "what leaves the layout is hidden, no more"


@pytest.mark.parametrize("size", [(1000, 650), (1280, 800), (1366, 740), (1440, 900), (2560, 1440)])
def test_the_plots_have_three_tenths_of_the_height(quiet: QuietWindow, size: tuple[int, int]) -> None:
    quiet.resize(*size)
    quiet.tell(*MEASURED)
    for layout, share in (("measure", 1 / 3), ("explore", 0.3)):
        quiet.window.workbench.show_layout(layout)
        quiet.settle()
        assert (quiet.window.width(), quiet.window.height()) == size
        for plot in quiet.window.slots:
            assert plot.height() >= size[1] * share * (0.93 if size[1] == 650 else 1)


@pytest.mark.parametrize("size", [(1000, 650), (1280, 800), (1440, 900), (2560, 1440)])
def test_a_throughput_that_was_never_measured_leaves_its_room_to_the_objects(
    quiet: QuietWindow, size: tuple[int, int]
) -> None:
    quiet.resize(*size)
    window = quiet.window

    def places() -> list[QRect]:
        panels = (window.objects, window.inspector, window.memory, window.bottom_dock)
        return [QRect(panel.mapTo(window, QPoint()), panel.size()) for panel in panels]

    assert not window.throughput.isVisible()
    assert window.memory.time_control.isVisible(), "no other plot has it"
    if size[1] == 1440:
        assert window.objects.width() * window.objects.height() > size[0] * size[1] / 3
    unmeasured, before = window.objects.height(), places()
    quiet.tell(*MEASURED)
    quiet.settle()
    assert places() == before, "nothing moves while one looks"
    for layout in ("measure", "explore"):
        window.workbench.show_layout(layout)
        quiet.settle()
        assert window.throughput.isVisible() == (layout == "measure" or size[1] != 800), "a low window has no room"
    assert window.objects.height() <= unmeasured


def beside(quiet: QuietWindow) -> bool:
    """Whether the pages are beside the plots."""
    return quiet.window.bottom_dock.width() < quiet.window.workbench.width()


def test_in_a_low_window_the_pages_are_beside_the_plots_and_the_tree_shows_ten_rows(quiet: QuietWindow) -> None:
    pytest.importorskip("devexplorer.gui.split")
    quiet.resize(1440, 900)
    assert not beside(quiet)
    quiet.resize(1366, 740)
    assert beside(quiet)
    tree = quiet.window.objects.tree
    assert tree.viewport().height() + tree.header().height() >= 10 * 26
    assert quiet.window.bottom_dock.areas["split"].height() >= 250
    quiet.resize(1000, 740)
    assert not beside(quiet), "nor wide enough"


def test_at_the_limit_nothing_goes_to_and_fro(quiet: QuietWindow) -> None:
    seen = []
    for height in (LOW_PX, LOW_PX - 1, LOW_PX + SLACK_PX - 1, LOW_PX + SLACK_PX, LOW_PX, LOW_PX - 1):
        quiet.resize(1440, height)
        seen.append(beside(quiet))
    assert seen == [False, True, True, False, False, True]
    quiet.resize(1440, LOW_PX - 1)
    quiet.window.say("something that takes a line")
    quiet.settle()
    assert beside(quiet)


def test_another_arrangement_changes_nothing_but_places(quiet: QuietWindow) -> None:
    """Neither what has the keyboard, nor what is folded, has a window or is enlarged; each has its own proportions."""
    pytest.importorskip("devexplorer.gui.split")
    window, room = quiet.window, quiet.window.workbench.room
    dock, page = window.bottom_dock, window.bottom_dock.show_page("split")
    rows = window.workbench.splitters["unmeasured rows"]
    rows.keep([0, 300])
    room.toggle_fold(window.inspector, "Inspector")
    room.detach(window.devices, "Devices")
    window.activateWindow()
    dock.tabs.tabBar().setFocus()
    for height, is_beside in ((740, True), (900, False)):
        quiet.resize(1440, height)
        assert beside(quiet) == is_beside
        assert QApplication.focusWidget() is dock.tabs.tabBar()
        assert dock.current == "split"
        assert page.isVisible()
        assert room.folded[window.inspector].isVisible()
        assert window.devices.window() is room.windows[window.devices]
    assert rows.sizes()[1] == 300
    room.attach(window.devices)
    room.unfold(window.inspector)
    room.enlarge(dock)
    dock.tabs.tabBar().setFocus()
    quiet.resize(1440, 740)
    assert dock.size() == window.workbench.size()
    assert QApplication.focusWidget() is dock.tabs.tabBar()
    room.restore()
    quiet.settle()
    assert window.objects.isVisible()
    assert beside(quiet)


def test_layout_and_proportions_are_kept_for_the_next_start(qapp: QApplication, tmp_path: Path) -> None:
    quiet = QuietWindow(qapp, tmp_path, CARD)
    quiet.window.workbench.show_layout("measure")
    quiet.settle()
    rows = quiet.window.workbench.splitters["measure rows"]
    before = rows.sizes()
    grip = rows.handle(1)
    middle = grip.rect().center()
    QTest.mousePress(grip, Qt.MouseButton.LeftButton, pos=middle)
    QTest.mouseMove(grip, middle + QPoint(0, 60))
    QTest.mouseRelease(grip, Qt.MouseButton.LeftButton, pos=middle)
    assert rows.sizes() == [before[0] + 60, before[1] - 60]
    settings = quiet.window.settings()
    quiet.close()
    assert settings.layout == "measure"
    SettingsFile(tmp_path).save(settings)
    again = QuietWindow(qapp, tmp_path, CARD)
    assert shown(again) == "measure"
    if "history" in features():
        assert again.window.toolbar.buttons["report"].isVisible()
    assert not again.window.toolbar.buttons["build"].isVisible()
    assert again.window.workbench.splitters["measure rows"].sizes()[1] == before[1] - 60
    again.close()


def test_an_unknown_layout_of_a_newer_version_is_the_first_one(qapp: QApplication, tmp_path: Path) -> None:
    SettingsFile(tmp_path).save(Settings(layout="orbit", splitters={"rows": [1, 2, 3], "orbit rows": [4]}))
    quiet = QuietWindow(qapp, tmp_path, CARD)
    assert shown(quiet) == "explore"
    assert quiet.window.settings().splitters["orbit rows"] == [4], "and its proportions are kept"
    quiet.close()


def test_a_row_of_monitor_chooses_its_device_and_a_double_click_opens_it(quiet: QuietWindow) -> None:
    quiet.window.workbench.show_layout("monitor")
    quiet.tell(READING)
    cards = quiet.window.workbench.cards
    assert [row.key for row in cards.table.rows] == [CPU.id, "nvml:0"]
    assert [cell.text for cell in cards.table.rows[1].cells[4:10]] == [
        "81", "149 / 150", "1,410", "6,251", "55", "power cap"
    ]  # fmt: skip
    quiet.window.bottom_dock.show_page("processes")
    where = cards.table.visualRect(cards.table.rows_model.index(1, 4)).center()
    QTest.mouseClick(cards.table.viewport(), Qt.MouseButton.LeftButton, pos=where)
    assert quiet.window.context.device == "nvml:0"
    assert quiet.window.devices.chosen == "nvml:0"
    QTest.mouseDClick(cards.table.viewport(), Qt.MouseButton.LeftButton, pos=where)
    assert quiet.window.bottom_dock.current == "device"


def test_few_devices_leave_the_room_to_the_plots_until_the_user_drags(quiet: QuietWindow) -> None:
    quiet.resize(2560, 1440)
    quiet.window.workbench.show_layout("monitor")
    quiet.tell()
    rows = quiet.window.workbench.splitters["monitor table above"]
    cards = quiet.window.workbench.cards
    assert cards.height() < rows.height() / 5
    assert cards.table.verticalScrollBar().maximum() == 0
    many = [msgspec.structs.replace(VGPU, id=f"vgpu:{at}") for at in range(60)]
    quiet.state.set_catalog(Catalog((CPU, *many), ()))
    quiet.tell()
    assert rows.sizes()[0] == round(0.5 * sum(rows.sizes()))
    quiet.state.set_catalog(Catalog((CPU, VGPU), ()))
    quiet.tell()
    grip = rows.handle(1)
    QTest.mousePress(grip, Qt.MouseButton.LeftButton, pos=grip.rect().center())
    QTest.mouseMove(grip, grip.rect().center() + QPoint(0, 400))
    QTest.mouseRelease(grip, Qt.MouseButton.LeftButton, pos=grip.rect().center())
    quiet.tell()
    assert cards.height() > rows.height() / 5
    assert quiet.window.settings().splitters["monitor table above"][0] == cards.height()


def test_the_stacked_plots_are_what_the_devices_report_and_can_be_more(quiet: QuietWindow) -> None:
    quiet.window.workbench.show_layout("monitor")  # as at the start of a window that was closed on it
    quiet.settle()
    stack = quiet.window.workbench.stack
    quiet.tell(READING)
    quiet.settle()
    assert stack.choices == ("utilization_percent", "power_w", "temperature_c")
    assert quiet.window.settings().monitor_plots == (), "nobody has chosen them"
    QTest.mouseClick(stack.add_button, Qt.MouseButton.LeftButton)
    assert stack.choices == ("utilization_percent", "power_w", "temperature_c", "memory_used_bytes")
    assert quiet.window.settings().monitor_plots == stack.choices
    for _ in range(3):
        QTest.mouseClick(stack.remove_button, Qt.MouseButton.LeftButton)
    assert stack.choices == ("utilization_percent",)
    assert not stack.remove_button.isEnabled()
    assert len({id(slot.plot._axis) for slot in (*stack.slots, *quiet.window.slots)}) == 1, "one time axis"


def test_the_palette_exports_what_monitor_shows(quiet: QuietWindow) -> None:
    quiet.tell(DeviceSample(device="cpu", time_unix_s=quiet.now, utilization_percent=5, temperature_c=50))
    quiet.window.workbench.show_layout("monitor")
    quiet.window.workbench.stack.show_choices(("utilization_percent",))
    quiet.settle()
    quiet.window.show_palette()
    palette = quiet.window.findChild(QWidget, "palette")
    assert palette is not None
    QTest.keyClicks(palette.field, "csv")  # type: ignore[attr-defined]
    QTest.keyClick(palette.field, Qt.Key.Key_Return)  # type: ignore[attr-defined]
    [dialog] = quiet.window.findChildren(ExportDialog)
    assert dialog.choice.metrics == ("utilization_percent",)
    dialog.reject()


def test_the_palette_finds_an_exercise_and_a_term_by_what_they_say(quiet: QuietWindow) -> None:
    pytest.importorskip("devexplorer.gui.learn")

    def found(text: str) -> CommandPalette:
        quiet.window.show_palette()
        [palette] = [one for one in quiet.window.findChildren(CommandPalette) if one.isVisible()]
        QTest.keyClicks(palette.field, text)
        return palette

    palette = found("model.to")
    lines = [palette.list.topLevelItem(row).text(0) for row in range(palette.list.topLevelItemCount())]
    assert lines[:1] == ["Exercise: A model moves in place"]
    assert "Glossary: move" in lines
    QTest.keyClick(palette.field, Qt.Key.Key_Return)
    assert shown(quiet) == "learn"
    assert quiet.window.bottom_dock.page("learn").course.exercise.title == "A model moves in place"
    palette = found("tflop")
    assert palette.list.topLevelItem(0).text(0) == "Glossary: TFLOP/s", "a name comes before what is said about it"
    QTest.keyClick(palette.field, Qt.Key.Key_Return)
    [glossary] = quiet.window.findChildren(GlossaryDialog)
    meaning = glossary.meanings["TFLOP/s"]
    assert meaning.visibleRegion().boundingRect() == meaning.rect()
    glossary.reject()
