"""The cards of the layout Monitor: every device at a glance, with temperature, power, clocks, fan and throttling. Main
thread."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from devexplorer.core.base import sentence
from devexplorer.core.records import Problem
from devexplorer.core.session import Device, State, UnderWay
from devexplorer.core.telemetry.alerts import Alert
from devexplorer.gui.devices.card import CARD_PX, ROW_PX, WARNING_PX, DeviceCard, DeviceRow
from devexplorer.gui.devices.card_text import CardTexts, watch_texts
from devexplorer.gui.devices.item import DeviceItem
from devexplorer.gui.devices.veil import Veil
from devexplorer.gui.widgets import HEADER_PX, UNLIMITED_PX, Panel, Role, ScrollArea, draw_text, label, text_width

CARD_WIDTH_PX, WIDEST_PX, ROW_WIDTH_PX = 236, 420, 228
"""Of a card, least and largest: within them, as few stand side by side as all have room. Of a row, least."""
EDGES_PX = 34
"""What lies beside the rows, with a scroll bar."""
GOOD_WIDTH_PX = 300
"""What a card gets where there is room."""
LEAST_BAR_PX, NAME_GAP_PX = 90, 12
"""Of a row: it says its card's name where so much is left for the bar, and so much lies between them."""
ALWAYS_CARDS = 3
"""So few devices are cards, however little room there is."""
MOST_COLUMNS = 5
MOST_HEADINGS = 4
"""Above rows: where kinds of cards take turns, headings would take the room of the rows."""
LINE_PX = 17
LABEL_PX = 72
_NAMED = ("fan", "throttled")
"""Quantities that a row names: their values do not say what they are."""


class MonitorCard(DeviceCard):
    """The card with a line for each quantity below it."""

    def _texts_of(self, device: Device, problems: tuple[Problem, ...], alerts: Sequence[Alert]) -> CardTexts:
        return super()._texts_of(device, problems, alerts)._replace(watched=watch_texts(device))

    def height_px(self) -> int:
        return super().height_px() + LINE_PX * len(self.texts.watched) + 4

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self)
        top = super().height_px() - 6
        left, right = self._SIDE, self.width() - 13
        for number, (name, value) in enumerate(self.texts.watched):
            line = QRect(left, top + number * LINE_PX, right - left, LINE_PX)
            draw_text(painter, line, name, "dim")
            draw_text(painter, line.adjusted(LABEL_PX, 0, 0, 0), value, "text")


class MonitorRow(DeviceRow):
    """The compact row with the name of the card, unless a heading says it, and the quantities in a line below it."""

    _longest_name_px = _name_px = 0

    @property
    def name(self) -> str:
        """The card's name without what all of them have."""
        return self.texts.name.removeprefix("NVIDIA ")

    def least_px(self, longest_name_px: int) -> int:
        """From which width on it says its card's name."""
        return self._beside_bar_px() + longest_name_px + NAME_GAP_PX + LEAST_BAR_PX

    def set_longest_name(self, pixels: int) -> None:
        """The longest name of all rows is so wide: then their bars are in line. 0: a heading says the names."""
        if pixels != self._longest_name_px:
            self._longest_name_px = pixels
            self._place_bar()
            self.update()

    def _place_bar(self) -> None:
        super()._place_bar()
        bar, wanted = self.bar.geometry(), self._longest_name_px + NAME_GAP_PX
        self._name_px = wanted if self._longest_name_px and bar.width() - wanted >= LEAST_BAR_PX else 0
        self.bar.setGeometry(bar.adjusted(self._name_px, 0, 0, 0))

    def _texts_of(self, device: Device, problems: tuple[Problem, ...], alerts: Sequence[Alert]) -> CardTexts:
        watched = watch_texts(device)
        if self._watched_px(watched) > self.width():
            watched = watch_texts(device, brief=True)
        return super()._texts_of(device, problems, alerts)._replace(watched=watched)

    def _watched_px(self, watched: Sequence[tuple[str, str]]) -> int:
        """How wide the line below is."""
        named = sum(text_width(name) + 5 for name, _ in watched if name in _NAMED)
        return self._SIDE + named + sum(text_width(value) + 14 for _, value in watched)

    def height_px(self) -> int:
        return super().height_px() + self._line_px

    @property
    def _line_px(self) -> int:
        return LINE_PX if self.texts.watched else 0

    def _paint_alarm(self, painter: QPainter, where: QRect) -> None:
        super()._paint_alarm(painter, where.translated(0, self._line_px))

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        x, y = self._SIDE, ROW_PX - 3
        painter = QPainter(self)
        if self._name_px:
            left = self._SIDE + self._id_width() + 6
            draw_text(painter, QRect(left, 0, self._name_px, ROW_PX - 1), self.name, "soft")
        for name, value in self.texts.watched:
            if name in _NAMED:
                x += draw_text(painter, QRect(x, y, self.width() - 8 - x, LINE_PX), name, "dim") + 5
            x += draw_text(painter, QRect(x, y, self.width() - 8 - x, LINE_PX), value, "text") + 14


class MonitorPanel(Panel):
    """Reads `state.devices`. `refresh_devices` when the list changed, `refresh_texts` for new readings."""

    selected = Signal(object)
    """Id of the device that was chosen (str)."""
    needs = Signal(int)
    """It needs no more than so many pixels of width, as high as it is."""

    def __init__(self, state: State) -> None:
        super().__init__("Devices at a glance")
        self._state = state
        self.items: dict[str, MonitorCard | MonitorRow] = {}
        self.chosen: str | None = None
        self._content = QWidget()
        self._grid = QGridLayout(self._content)
        self._grid.setContentsMargins(8, 8, 8, 8)
        self.headings: dict[str, str] = {}
        """Above which rows there is one, and what it says."""
        self._labels: list[QLabel] = []
        self._columns, self._compact = 0, False
        self.area = ScrollArea(self._content, "Devices")
        self.set_content(self.area)
        self.veil = Veil(self.area)
        self._age = ("", "")

    def choose(self, device_id: str | None) -> None:
        """Mark a device as chosen, without a signal."""
        self.chosen = device_id
        for name, item in self.items.items():
            item.set_selected(name == device_id)

    def set_age(self, words: str, about: str = "") -> None:
        """As that of the panel Devices."""
        if (words, about) != self._age:
            self._age = words, about
            self.veil.setVisible(bool(words))
            self._show_subtitle()

    def refresh_devices(self) -> None:
        """Devices came, went or changed: cards that stay keep their widget."""
        self._compact = not self._fits()
        kind = MonitorRow if self._compact else MonitorCard
        for name in [
            name for name, item in self.items.items() if name not in self._state.devices or type(item) is not kind
        ]:
            item = self.items.pop(name)
            item.hide()
            item.deleteLater()
        self.items = {name: self.items.get(name) or self._new_card(kind, name) for name in self._state.devices}
        self._columns = 0
        self.choose(self.chosen)
        self._show_texts()
        self._place()
        self._tell_need()

    def _tell_need(self) -> None:
        """As few columns as all cards have room in, if there is such a number: more would be empty."""
        columns = next((number for number in range(1, MOST_COLUMNS) if self._cards_px(number) <= self._room_px), 0)
        self.needs.emit(16 + columns * (GOOD_WIDTH_PX + 8) - 8 if columns else UNLIMITED_PX)

    def _new_card(self, kind: type[MonitorCard | MonitorRow], name: str) -> MonitorCard | MonitorRow:
        card = kind(self._state.devices[name])
        card.setAcceptDrops(False)
        card.selected.connect(self._on_selected)
        return card

    def _most_columns(self, least_px: int) -> int:
        """How many columns of this width there is room for."""
        return max(1, (self.width() - 24) // (least_px + 8))

    @property
    def _room_px(self) -> int:
        return self.height() - HEADER_PX

    def _cards_px(self, columns: int) -> int:
        """How high all devices are as cards."""
        heights = [CARD_PX + LINE_PX * len(watch_texts(device)) + 4 for device in self._state.devices.values()]
        rows = [max(heights[at : at + columns]) for at in range(0, len(heights), columns)]
        return sum(rows) + 8 * (len(rows) + 1)

    def _fits(self) -> bool:
        """Whether all devices can be seen as cards."""
        return (
            len(self._state.devices) <= ALWAYS_CARDS
            or self._cards_px(self._most_columns(CARD_WIDTH_PX)) <= self._room_px
        )

    def _wanted_columns(self) -> int:
        most = self._most_columns(ROW_WIDTH_PX if self._compact else CARD_WIDTH_PX)
        if self._compact:  # below each other, where all of them can be seen so; alarms, which come and go, move none
            heights = (card.height_px() + 4 - WARNING_PX * bool(card.texts.alarm) for card in self.items.values())
            height = sum(heights) + LINE_PX + 16
            return 1 if height <= self._room_px else most
        least = max(1, min(-(-(self.width() - 24) // (WIDEST_PX + 8)), most))  # without a width, one
        return next((number for number in range(least, most) if self._cards_px(number) <= self._room_px), most)

    def _wanted_headings(self, columns: int) -> dict[str, str]:
        """That devices are simulated, and the cards' names where the rows have no room for them."""
        rows = [card for card in self.items.values() if isinstance(card, MonitorRow)]
        longest = max((text_width(row.name) for row in rows), default=0)
        room = (self.width() - EDGES_PX) // columns
        named = any(row.least_px(longest) > room for row in rows)
        for row in rows:
            row.set_longest_name(0 if named else longest)
        headings = _headings(rows, named=named)
        return headings if len(headings) <= MOST_HEADINGS else _headings(rows, named=False)

    def _place(self) -> None:
        columns = self._wanted_columns()
        headings = self._wanted_headings(columns)
        if (columns, headings) == (self._columns, self.headings):
            return
        self._columns, self.headings = columns, headings
        self._grid.setSpacing(4 if self._compact else 8)
        for old in self._labels:
            old.hide()
            self._grid.removeWidget(old)
            old.deleteLater()
        self._labels = []
        previous: DeviceItem | None = None
        cell = 0
        for name, card in self.items.items():
            if name in headings:
                cell += -cell % columns
                heading = label(headings[name], Role.LABEL, "dim")
                self._labels.append(heading)
                self._grid.addWidget(heading, cell // columns, 0, 1, columns)
                cell += columns
            self._grid.addWidget(card, cell // columns, cell % columns, Qt.AlignmentFlag.AlignTop)
            cell += 1
            if previous is not None:
                QWidget.setTabOrder(previous, card)
            previous = card
        for column in range(self._grid.columnCount()):
            self._grid.setColumnStretch(column, int(column < columns))
        for row in range(self._grid.rowCount() + 1):
            self._grid.setRowStretch(row, int(row > (cell - 1) // columns))

    def show_progress(self, work: UnderWay) -> None:
        """Show long work on the cards of the devices that it keeps busy."""
        for name, card in self.items.items():
            card.set_progress(work.devices.get(name))

    @property
    def _is_stale(self) -> bool:
        """Whether other devices are to be shown, or in the other form."""
        return self.items.keys() != self._state.devices.keys() or self._compact == self._fits()

    def refresh_texts(self) -> None:
        """Take over the latest readings."""
        if self._is_stale:
            self.refresh_devices()
        else:
            self._show_texts()
            self._place()
            self._tell_need()

    def _show_texts(self) -> None:
        alerts = self._state.alerts.active
        for name, card in self.items.items():
            device = self._state.devices.get(name)
            if device is not None:
                card.refresh(device, self._state.problems, alerts)
        self._show_subtitle()

    def _show_subtitle(self) -> None:
        age, about = self._age
        machine = dict.fromkeys(problem.reason for problem in self._state.problems if problem.device is None)
        first, others = [*machine][:1], [*machine][1:]
        words = [*([age] if age else []), *(["GiB"] if self._compact else []), *first]
        brief = " · ".join(word.partition(":")[0] for word in words)  # without the reason
        self.set_subtitle(" · ".join(words), "\n".join([*([about] if about else []), *map(sentence, others)]), brief)

    def _on_selected(self, device_id: str) -> None:
        self.choose(device_id)
        self.selected.emit(device_id)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh_texts()  # nobody called it while this was hidden

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)  # the first one comes before it is shown, and makes the cards: or rows, as they fit
        if self._is_stale:
            self.refresh_devices()
        else:
            self._place()
            self._tell_need()


def _headings(rows: Sequence[MonitorRow], *, named: bool) -> dict[str, str]:
    """Above the first of those that have the same; the CPU, which comes first, needs none."""
    headings, before = {}, ""
    for row in rows:
        words = "simulated" if row.texts.simulated else "", row.name if named and row.device_id != "cpu" else ""
        heading = ": ".join(filter(None, words))
        if heading and heading != before:
            headings[row.device_id] = heading
        before = heading
    return headings
