"""The page Fleet: which machines, the grid of their cards, the check and what came of it. Main thread; reads the fleet
that its room watches."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QContextMenuEvent, QKeyEvent
from PySide6.QtWidgets import QApplication, QLineEdit, QProgressBar, QWidget

from devexplorer.core.base import MISSING, Clock, bytes_text, count_text, list_text, sentence
from devexplorer.core.fleet.check.fleet_check import CheckReport
from devexplorer.core.fleet.events import MachineState
from devexplorer.core.fleet.records import CardVerdict, LoadReadings, Verdict
from devexplorer.core.fleet.report.document import cause_text, group_line, interrupted_line, line, ratio_text
from devexplorer.core.fleet.window.watched_fleet import WatchedFleet
from devexplorer.core.machines.window.link import STATES, age_text
from devexplorer.core.records import Fact
from devexplorer.core.session import State
from devexplorer.gui.fleet import actions
from devexplorer.gui.fleet.grid import FleetGrid
from devexplorer.gui.fleet.model import COLUMNS, FleetModel
from devexplorer.gui.fleet.room import WINDOW, FleetRoom
from devexplorer.gui.widgets import (
    CENTRE,
    EDGE_PX,
    Choice,
    ElidedLabel,
    FactsTable,
    Figures,
    Role,
    ScrollColumn,
    hbox,
    holder,
    label,
    labelled,
    line_edit,
    menu_button,
    offer_menu,
    push_button,
    set_look,
    stack,
    thin_line,
    vbox,
)

NAMED = 3
"""Cards that a sentence names."""


def counted(fleet: WatchedFleet, hits: int, *, filtered: bool) -> str:
    """What there is, and what is not as it should be."""
    table = fleet.table
    if not table.machines:
        return ""
    cards = sum(card.info.kind != "cpu" for card in table.cards)
    states = Counter(machine.state for machine in table.machines.values())
    parts = [count_text(len(table.machines), "machine"), count_text(cards, "card")]
    if cards and all(card.info.simulated for card in table.cards if card.info.kind != "cpu"):
        parts[-1] += ", simulated"
    if filtered:
        parts.append(f"{hits:,} match")
    away: tuple[MachineState, ...] = ("connecting", "reconnecting", "lost")
    parts += [f"{states[state]} {'not connected' if state == 'lost' else state}" for state in away if states[state]]
    return " · ".join(parts)


def why_empty(fleet: WatchedFleet) -> str:
    """Why no card is shown."""
    if fleet.problem:
        return f"{fleet.problem[:1].upper()}{fleet.problem[1:].rstrip('.')}."
    if any(machine.state == "connecting" for machine in fleet.table.machines.values()):
        return "Connecting…"
    if not fleet.table.machines:
        return "Looking for machines…"
    return "No machine here has a card. Simulate a fleet, or choose hosts or a cluster, with the button at the left."


def summary(report: CheckReport) -> tuple[str, bool]:
    """What came of a check, and whether anything is wrong."""
    cards = report.verdict.cards
    found = {verdict: [card for card in cards if card.verdict is verdict] for verdict in Verdict}
    slow, failed = found[Verdict.SLOW], found[Verdict.FAILED]
    total = count_text(len(cards), "simulated card" if any(card.simulated for card in cards) else "card")
    parts = []
    if slow:
        worst = sorted(slow, key=lambda card: card.ratio or 0.0)
        parts.append(f"{len(slow)} of {total} {'is' if len(slow) == 1 else 'are'} slow: {_named(worst)}.")
    if failed:
        parts.append(f"{len(failed)} of {total} failed: {_named(failed)}.")
    for a, b in report.slow_links[:NAMED]:
        parts.append(f"Slow between {'/'.join(a)} and {'/'.join(b)}.")
    if report.slow_machines:
        parts.append(f"Slow together with any other machine: {list_text(list(report.slow_machines[:NAMED]))}.")
    wrong = bool(parts)
    if not wrong:
        parts.append(f"None of {total} is slow." if found[Verdict.NORMAL] else f"Nothing can be said of {total}.")
    if found[Verdict.UNKNOWN] and found[Verdict.NORMAL]:
        parts.append(f"Of {len(found[Verdict.UNKNOWN])} nothing can be said.")
    parts += [group_line(finding) for finding in report.verdict.groups[:1]]
    if report.cancelled:
        parts.insert(0, sentence(interrupted_line(report)))
    return " ".join(parts), wrong


def _named(cards: list[CardVerdict]) -> str:
    names = []
    for card in cards[:NAMED]:
        ratio = "" if card.ratio is None or card.why is not None else f" at {100 * card.ratio:.1f} %"
        names.append(f"{card.machine}/{card.device}{ratio}")
    more = f" and {len(cards) - NAMED} more" if len(cards) > NAMED else ""
    return ", ".join(names) + more


def facts(fleet: WatchedFleet, key: object) -> tuple[str, tuple[Fact, ...]]:
    """The name of what is selected, and what is known of it."""
    if isinstance(key, tuple):
        row = fleet.table.row(*key)
        if row is not None:
            return "/".join(key), tuple(_of_card(fleet, row))
    elif isinstance(key, str) and key in fleet.table.machines:
        return key, tuple(_of_machine(fleet, key))
    return "", ()


def _of_machine(fleet: WatchedFleet, name: str) -> Iterator[Fact]:
    machine = fleet.table.machines[name]
    yield Fact("state", STATES[machine.state])
    if machine.problem:
        yield Fact("problem", machine.problem)
    if machine.rack:
        yield Fact("rack", machine.rack)
    if machine.simulated:
        yield Fact("simulated", "yes")
    for problem in fleet.table.problems.get(name, ()):
        yield Fact(problem.device or "problem", problem.reason)


def _of_card(fleet: WatchedFleet, row: int) -> Iterator[Fact]:
    card, sample = fleet.table.cards[row], fleet.table.samples[row]
    yield Fact("model", f"{card.info.name}{', simulated' * card.info.simulated}")
    key = (card.machine, card.info.id)
    verdict = fleet.verdicts.get(key)
    if verdict is not None:
        yield from _of_verdict(verdict)
        measured = next(
            (one for one in fleet.report.measurements if (one.machine, one.device) == key), None
        ) if fleet.report is not None else None  # fmt: skip
        if measured is not None and measured.readings is not None:
            yield from _under_load(measured.readings)
    for raised in fleet.alerts.of(row):
        yield Fact("alert" if raised.is_alarm else "notice", raised.text)
    for problem in fleet.table.problems.get(card.machine, ()):
        if problem.device == card.info.id:
            yield Fact("problem", problem.reason)
    machine = fleet.table.machines.get(card.machine)
    if machine is not None:
        yield Fact("machine", f"{STATES[machine.state]}{f': {machine.problem}' if machine.problem else ''}")
        if machine.rack:
            yield Fact("rack", machine.rack)
    if card.info.uuid:
        yield Fact("UUID", card.info.uuid)
    if sample is None:
        yield Fact("readings", "none yet")
        return
    yield Fact("memory", f"{bytes_text(sample.memory_used_bytes)} of {bytes_text(sample.memory_total_bytes)}")
    if sample.throttle_reasons:
        yield Fact("throttled", ", ".join(sample.throttle_reasons))
    corrected = MISSING if sample.ecc_corrected is None else f"{sample.ecc_corrected:,}"
    uncorrected = MISSING if sample.ecc_uncorrected is None else f"{sample.ecc_uncorrected:,}"
    yield Fact("ECC errors", f"{corrected} corrected, {uncorrected} not")
    yield Fact("reading", age_text(max(time.time() - sample.time_unix_s, 0.0)))


def _of_verdict(verdict: CardVerdict) -> Iterator[Fact]:
    yield Fact("verdict", line(verdict))
    for one in verdict.comparisons:
        limit = f"slow below {100 * one.slow_below:.1f} %"
        yield Fact("slow" if one.slow else "compared", f"{ratio_text(one)}; {limit}")
    for cause in verdict.causes:
        yield Fact("cause", f"{cause_text(cause)}, strength {100 * cause.strength:.0f} %")


def _under_load(readings: LoadReadings) -> Iterator[Fact]:
    """What was read while it was measured."""
    values = (
        (readings.temperature_c, "°C"), (readings.sm_clock_mhz, "MHz"), (readings.power_w, "W"),
    )  # fmt: skip
    parts = [f"{value:,.0f} {unit}" for value, unit in values if value is not None and not math.isnan(value)]
    if readings.pcie_width is not None:
        parts.append(f"×{readings.pcie_width} lanes")
    if parts:
        yield Fact("under load", ", ".join(parts))
    if readings.throttled:
        yield Fact("held down", ", ".join(f"{why} {100 * share:.0f} %" for why, share in readings.throttled.items()))


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

    def __init__(self, state: State, monotonic: Clock = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._due_s = 0.0
        self._structure = -1
        self._room: FleetRoom
        self.setAccessibleName("Fleet")
        self.source_button = menu_button(tip="Which machines are shown")
        self.source_menu = self.source_button.menu()
        self.filter = line_edit(
            placeholder="Filter", name="filter cards", width_px=168, clear=True,
            tip="Words that all occur in a card: its machine, device, model, rack; slow, failed, unknown, normal, alert"
            " ( / )",
        )  # fmt: skip
        self.by = Choice("group by", BY)
        self.count = ElidedLabel(words="dim")
        self.alarm_button = push_button(clicked=lambda: self.filter.setText("alert"), look="quiet")
        self.progress = QProgressBar(textVisible=False)
        self.progress.setRange(0, 1000)
        self.progress.setFixedWidth(120)
        self.cancel_button = push_button(
            "Cancel", lambda: self._room.cancel_check(), look="quiet", tip="End the check with what it has"
        )
        self.export_button = push_button("Export report…", look="quiet")
        self.check_button = push_button("Check…", look="primary")
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
        choices: tuple[tuple[str, Callable[[], object]], ...] = (
            (WINDOW, room.open_window_machines), ("Simulated…", partial(actions.simulate, room.context)),
            ("Hosts from file…", partial(actions.choose_hosts, room.context)),
            ("Ray cluster…", partial(actions.attach, room.context)),
        )  # fmt: skip
        for words, chosen in choices:
            self.source_menu.addAction(words, chosen)
        self.check_button.clicked.connect(partial(actions.check, room.context))
        self.export_button.clicked.connect(partial(actions.export, room.context))
        self._lay_out()
        self.filter.textChanged.connect(self._filter)
        self.by.currentIndexChanged.connect(self._group)
        self.grid.chosen.connect(self._show_details)
        room.opened.connect(self._opened)
        room.check_changed.connect(self._check_changed)
        self._opened()

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

    def refresh(self) -> None:
        """Show it as it is now; the grid once a second at most."""
        room = self._room
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
        if not len(self.model.arrangement.lines):
            return None
        rows = [
            tuple(self.model.cell(row, column).whole for column in range(len(COLUMNS)))
            for row in self.model.arrangement.lines[:MOST_FIGURES].tolist()
        ]
        return Figures(tuple(column.title for column in COLUMNS), rows)

    # --- parts

    def _opened(self) -> None:
        """Another fleet is watched."""
        self.model.set_fleet(self._room.fleet)
        self.grid.choose(None)
        self._check_changed()

    def _check_changed(self) -> None:
        room = self._room
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
        self.count.set_full_text(words, brief=words.split(" · ")[1] if words else "")
        alarms = int(fleet.alerts.alarms.sum())
        self.alarm_button.setVisible(bool(alarms))
        self.alarm_button.setText(f"✕ {count_text(alarms, 'card')} with alerts")
        left_out = fleet.alerts.left_out
        self.alarm_button.setToolTip(
            "Show the cards with alerts" + (f". Not watched here: {', '.join(left_out)}" if left_out else "")
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
        self._show_head(self._room)

    def _show_slow(self) -> None:
        report = self._room.fleet.report
        self.filter.setText("slow" if report is not None and report.verdict.slow else "failed")

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
        offer_menu(self, event)
