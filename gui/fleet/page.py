"""The page Fleet: which machines, the grid of their cards, the check and what came of it. Main thread; reads the fleet
that its room watches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QEvent, Qt, Signal, SignalInstance
from PySide6.QtGui import QContextMenuEvent, QKeyEvent
from PySide6.QtWidgets import QApplication, QLineEdit, QProgressBar, QToolButton, QWidget

from devexplorer.core.base import Clock, count_text
from devexplorer.core.session import State
from devexplorer.gui.fleet.cells import COLUMNS
from devexplorer.gui.fleet.grid import FleetGrid
from devexplorer.gui.fleet.model import FleetModel
from devexplorer.gui.fleet.room import WINDOW, FleetRoom
from devexplorer.gui.fleet.words import counted, facts, summary, why_empty
from devexplorer.gui.widgets import (
    CENTRE,
    EDGE_PX,
    ButtonMenu,
    ElidedLabel,
    FactsTable,
    Figures,
    Role,
    ScrollColumn,
    hbox,
    holder,
    label,
    line_edit,
    offer_table,
    push_button,
    set_look,
    stack,
    thin_line,
    vbox,
)
from devexplorer.gui.widgets.form_fields import Choice, labelled

REFRESH_S = 0.9
"""The grid is painted once a second at most."""
DETAILS_PX, BESIDE_PX = 320, 1120
"""The facts of what is selected, and the width from which on there is room for them beside the verdicts."""
NARROW_PX = 1000
"""Below this width the number of cards gives way to a check and what came of it."""
MOST_FIGURES = 4096
BY = (
    ("machine", "machine", "A heading for each machine"),
    ("model", "model", "A heading for each model of card"),
    ("rack", "rack", "A heading for each rack, as the list of hosts, or a label of the nodes, names them"),
    ("nothing", "nothing", "All cards below each other"),
)


class FleetPage(QWidget):
    """`set_room` once; `refresh` as time goes by."""

    simulation_requested = Signal()
    hosts_requested = Signal()
    cluster_requested = Signal()
    check_requested = Signal()
    export_requested = Signal()

    def __init__(self, state: State, monotonic: Clock = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._due_s = 0.0
        self._structure = -1
        self._room: FleetRoom | None = None
        self.setAccessibleName("Fleet")
        self.source_button = QToolButton(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        self.source_button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.source_button.setToolTip("Which machines are shown")
        self.source_menu = ButtonMenu(self.source_button)
        self.source_button.setMenu(self.source_menu)
        self.filter = line_edit(
            placeholder="Filter", name="filter cards", width_px=168, clear=True,
            tip="Words that all occur in a card: its machine, device, model, rack; slow, failed, unknown, normal, alarm"
            " ( / )",
        )  # fmt: skip
        self.by = Choice("group by", BY)
        self.count = ElidedLabel(words="dim")
        self.alarm_button = push_button(clicked=self._show_alarms, look="quiet", tip="Show the cards with alarms")
        self.progress = QProgressBar(textVisible=False)
        self.progress.setRange(0, 1000)
        self.progress.setFixedWidth(120)
        self.cancel_button = push_button("Cancel", self._cancel, look="quiet", tip="End the check with what it has")
        self.export_button = push_button("Export report…", self.export_requested, look="quiet")
        self.check_button = push_button("Check…", self.check_requested, look="primary")
        self.message = label(wrap=True)
        self.message.setAccessibleName("What the check found")
        self.slow_button = push_button("Show them", self._show_slow, look="quiet")
        self.model: FleetModel
        self.grid: FleetGrid
        self.nothing = label(words="dim", wrap=True, align=CENTRE)
        self.nothing.setContentsMargins(EDGE_PX, EDGE_PX, EDGE_PX, EDGE_PX)
        self.name = label(role=Role.STRONG)
        self.facts = FactsTable()

    # --- what it shows

    def set_room(self, room: FleetRoom) -> None:
        """Show what this one watches."""
        self._room = room
        self.model = FleetModel(room.fleet)
        self.grid = FleetGrid(self.model)
        self._fill_menu(room)
        self._lay_out()
        self.filter.textChanged.connect(self._filter)
        self.by.currentIndexChanged.connect(self._group)
        self.grid.chosen.connect(self._show_details)
        room.opened.connect(self._opened)
        room.check_changed.connect(self._check_changed)
        room.beaten.connect(self._beaten)
        self._opened()

    def _fill_menu(self, room: FleetRoom) -> None:
        menu: tuple[tuple[str, Callable[[], Any] | SignalInstance], ...] = (
            (WINDOW, room.open_window_machines), ("Simulated…", self.simulation_requested),
            ("Hosts of a list…", self.hosts_requested), ("Ray cluster…", self.cluster_requested),
        )  # fmt: skip
        for words, chosen in menu:
            self.source_menu.addAction(words).triggered.connect(chosen)

    def _lay_out(self) -> None:
        head = hbox(
            self.source_button, self.filter, labelled("Group by", self.by), (self.count, 99), None,
            self.alarm_button, self.progress, self.cancel_button, self.export_button, self.check_button,
            margins=(EDGE_PX, 6, 8, 4),
        )  # fmt: skip
        self._result = holder(hbox((self.message, 1), self.slow_button, margins=(EDGE_PX, 0, 8, 4)))
        self._details = ScrollColumn("what is selected", DETAILS_PX)
        self._details.set_content(vbox(self.name, self.facts, None, spacing=8, margins=EDGE_PX))
        self._line = thin_line(upright=True)
        self._stack = stack(self.grid, self.nothing)
        body = hbox((self._stack, 1), self._line, self._details, spacing=0)
        vbox(head, self._result, (holder(body), 1), spacing=0, parent=self)

    def _beaten(self) -> None:
        if self.isVisible():
            self.refresh()

    def refresh(self) -> None:
        """Show it as it is now; the grid once a second at most."""
        room = self._room
        if room is None:
            return
        self._show_work(room)
        now, structure = self._monotonic(), room.fleet.table.structure
        if now < self._due_s and structure == self._structure:
            return
        self._due_s, self._structure = now + REFRESH_S, structure
        self.grid.refresh()
        self._show_head(room)
        self._show_details(self.grid.key)

    def figures(self) -> Figures | None:
        """What the grid shows."""
        if self._room is None or not len(self.model.arrangement.lines):
            return None
        rows = [
            tuple(self.model.cell(row, column).whole for column in range(len(COLUMNS)))
            for row in self.model.arrangement.lines[:MOST_FIGURES].tolist()
        ]
        return Figures(tuple(column.title for column in COLUMNS), rows)

    # --- parts

    def _opened(self) -> None:
        """Another fleet is watched."""
        assert self._room is not None
        self.model.set_fleet(self._room.fleet)
        self.grid.choose(None)
        self._check_changed()

    def _check_changed(self) -> None:
        room = self._room
        assert room is not None
        report = room.fleet.report
        self._result.setVisible(report is not None)
        if report is not None:
            text, wrong = summary(report)
            self.message.setText(text)
            set_look(self.message, "warning" if wrong else "soft")
            self.slow_button.setVisible(wrong)
        self._due_s = 0.0
        self.refresh()

    def _show_head(self, room: FleetRoom) -> None:
        fleet = room.fleet
        self.source_button.setText(f"{fleet.name} ▾")
        words = counted(fleet, self.model.arrangement.hits, filtered=bool(self.filter.text().strip()))
        self.count.set_full_text(words, brief=words.split(" · ")[1])
        alarms = int(fleet.alerts.alarms.sum())
        self.alarm_button.setVisible(bool(alarms))
        self.alarm_button.setText(f"✕ {count_text(alarms, 'card')} with alarms")
        left_out = fleet.alerts.left_out
        self.alarm_button.setToolTip(
            "Show the cards with alarms" + (f". Not watched here: {', '.join(left_out)}" if left_out else "")
        )
        empty = not len(self.model.arrangement.lines)
        if empty:
            self.nothing.setText("No card matches the filter." if self.filter.text().strip() else why_empty(fleet))
        self._stack.setCurrentWidget(self.nothing if empty else self.grid)

    def _show_work(self, room: FleetRoom) -> None:
        work, why_not = room.work, room.fleet.why_no_check
        for widget in (self.progress, self.cancel_button):
            widget.setVisible(work is not None)
        if work is not None:
            self.progress.setValue(int(1000 * work.done))
            self.progress.setToolTip(work.title)
        self.check_button.setVisible(work is None)
        self.check_button.setEnabled(why_not is None)
        self.check_button.setToolTip(why_not or "Measure every card and find the slow one")
        self.export_button.setVisible(room.fleet.report is not None)
        narrow = self.width() < NARROW_PX
        self.count.setVisible(not narrow or (work is None and room.fleet.report is None))

    def _show_details(self, key: object) -> None:
        assert self._room is not None
        name, known = facts(self._room.fleet, key)
        shown = bool(known) and self.width() >= BESIDE_PX
        self._line.setVisible(shown)
        self._details.setVisible(shown)
        if shown:
            self.name.setText(name)
            self.facts.set_facts(known)

    # --- what the user does

    def _filter(self, text: str) -> None:
        self.model.filter(text)
        self._arranged()

    def _group(self) -> None:
        self.model.group_by(self.by.value)
        self._arranged()

    def _arranged(self) -> None:
        self.grid.arranged()
        if self._room is not None:
            self._show_head(self._room)

    def _show_slow(self) -> None:
        self.filter.setText("slow" if self._room and self._room.fleet.report and self._room.fleet.report.verdict.slow
                            else "failed")  # fmt: skip

    def _show_alarms(self) -> None:
        self.filter.setText("alarm")

    def _cancel(self) -> None:
        if self._room is not None:
            self._room.cancel_check()

    def event(self, event: QEvent) -> bool:
        typed = isinstance(QApplication.focusWidget(), QLineEdit)
        is_override = event.type() == QEvent.Type.ShortcutOverride
        if is_override and isinstance(event, QKeyEvent) and not typed and event.text() == "/":
            event.accept()  # here it is this filter
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.text() == "/":
            self.filter.setFocus(Qt.FocusReason.ShortcutFocusReason)
            self.filter.selectAll()
            return
        super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        offer_table(self, event)
