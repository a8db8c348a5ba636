"""The devices panel: a card per device, or compact rows where room is short, and the offer of virtual GPUs. Main
thread."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QStackedLayout, QVBoxLayout, QWidget

from devexplorer.core.base import sentence
from devexplorer.core.session import State, UnderWay
from devexplorer.gui.actions import verdicts
from devexplorer.gui.devices.card import CARD_PX, ROW_PX, WARNING_PX, DeviceCard, DeviceItem, DeviceRow
from devexplorer.gui.widgets import (
    EDGE_PX,
    HEADER_PX,
    ElidedLabel,
    Panel,
    Role,
    ScrollArea,
    holder,
    label,
    push_button,
    show_text,
    vbox,
    why_fixed,
)

ADD_TIP = "Add simulated GPUs: real values, counted memory, modelled time"
ROW_GAP_PX = 4
INDENT_PX = 14
"""Indent of the MIG instances of a card."""


class ReadingsPanel(Panel):
    """A panel with the readings of all devices, which can be of the past."""

    def __init__(self, state: State) -> None:
        super().__init__("Devices")
        self._state = state
        self.chosen: str | None = None
        """Id of the chosen device, or None."""
        self._age = ("", "")
        self.veil = QFrame()
        """Makes what is below it pale; clicks go through."""
        self.veil.setObjectName("veil")
        self.veil.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)

    def set_age(self, words: str, about: str = "") -> None:
        """The readings are so old: say it, with more `about` it in the tooltip, and show them pale. Empty: they are of
        now."""
        if (words, about) != self._age:
            self._age = words, about
            self.veil.setVisible(bool(words))
            self._show_subtitle()

    def below_veil(self, readings: QWidget) -> QWidget:
        """What shows the readings, with the veil over it."""
        result = QWidget()
        both = QStackedLayout(result)
        both.setStackingMode(QStackedLayout.StackingMode.StackAll)
        both.addWidget(readings)
        both.addWidget(self.veil)
        both.setCurrentWidget(self.veil)
        self.veil.hide()
        return result

    def _show_subtitle(self) -> None:
        raise NotImplementedError


class DevicesPanel(ReadingsPanel):
    """Reads `state.devices`. `refresh_devices` when the list changed, `refresh_texts` for new readings."""

    selected = Signal(object)
    """Id of the device that was chosen (str)."""
    menu_requested = Signal(object, object)
    """The id of a device, and where on the screen (QPoint) its menu is wanted."""
    dropped = Signal(object, object)
    """Targets (tuple of str) and the id of the device they were dropped on."""
    add_virtual_requested = Signal()
    """The user wants to choose virtual GPUs."""
    virtual_offered = Signal()
    """The user takes the offer of two virtual GPUs."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.items: dict[str, DeviceItem] = {}
        """The card or row of each device by its id, in the order on screen."""
        self._full = 0
        self._dragged: tuple[str, ...] = ()
        self.add_button = push_button("+ virtual GPU", self.add_virtual_requested, look="quiet", tip=ADD_TIP)
        self.add_to_header(self.add_button)
        self.offer = self._make_offer()
        self._simulated = label("simulated", Role.LABEL, "dim")
        self.machine = ElidedLabel(Role.LABEL, "dim")
        """What is missing on this machine and why: the first in a line below the cards, the others in its tooltip."""
        self.machine.setContentsMargins(EDGE_PX, 4, EDGE_PX, 6)
        self._cards, self._rows = QVBoxLayout(), vbox(spacing=ROW_GAP_PX)
        self.area = ScrollArea(vbox(self._cards, self._rows, self.offer, None, margins=8))
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.set_content(holder(vbox((self.below_veil(self.area), 1), self.machine, spacing=0)))
        self.refresh_devices()

    def _make_offer(self) -> QFrame:
        offer = QFrame()
        offer.setObjectName("offer")
        self.offer_words = label("", words="soft", wrap=True)
        self.offer_button = push_button("Add two virtual GPUs", self.virtual_offered, look="primary")
        vbox(self.offer_words, self.offer_button, spacing=10, margins=EDGE_PX, parent=offer)
        return offer

    def choose(self, device_id: str | None) -> None:
        """Mark a device as chosen, without a signal."""
        self.chosen = device_id
        for name, item in self.items.items():
            item.set_selected(name == device_id)

    def show_verdicts(self, targets: tuple[str, ...]) -> None:
        """Say on every card what dropping `targets` there would do; empty: nothing is dragged any more."""
        self._dragged = targets
        result = verdicts(self._state, targets, self.items) if targets else {}
        for name, item in self.items.items():
            item.set_verdict(result.get(name))

    def _show_subtitle(self) -> None:
        rows = any(isinstance(item, DeviceRow) for item in self.items.values())  # which name no unit
        words, about = self._age
        self.set_subtitle(words or ("GiB" if rows else ""), about)

    def refresh_devices(self) -> None:
        """Devices came, went or changed: cards that stay keep their widget."""
        state = self._state
        self._full = self._room_for_cards()
        wanted: dict[str, type[DeviceItem]] = {}
        for index, (name, instances) in enumerate(families(state).items()):
            wanted[name] = DeviceCard if index < self._full else DeviceRow
            wanted |= dict.fromkeys(instances, DeviceRow)
        for name in [name for name, item in self.items.items() if wanted.get(name) is not type(item)]:
            item = self.items.pop(name)
            item.hide()
            item.deleteLater()
        items = {}
        for name, kind in wanted.items():
            items[name] = self.items.get(name) or self._new_item(kind, name)
        self.items = items
        self._show_subtitle()
        self._fill()
        self.choose(self.chosen if self.chosen in items else None)
        self.refresh_texts()

    def _room_for_cards(self) -> int:
        """How many devices get a full card: so many that all devices can be seen at once; a single one in any case."""
        cards = families(self._state)
        number, instances = len(cards), sum(map(len, cards.values()))
        if number == 1:
            return 1
        footer = 0 if self.machine.isHidden() else self.machine.sizeHint().height()
        word = self._simulated.sizeHint().height() + ROW_GAP_PX  # above the rows of simulated devices
        room = self.height() - HEADER_PX - 2 - 2 * 8 - footer - instances * (ROW_PX + ROW_GAP_PX)
        alarmed = sum(bool(item.texts.alarm) for item in self.items.values())  # a line each, on cards and rows
        for full in range(number, 0, -1):
            rows = number - full
            more = alarmed + sum(
                name in self.items and bool(self.items[name].texts.warning) for name in list(cards)[:full]
            )
            if (
                full * (CARD_PX + 8) - 8 + more * WARNING_PX + (8 + word + rows * (ROW_PX + ROW_GAP_PX) if rows else 0)
                <= room
            ):
                return full
        return 0

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._room_for_cards() != self._full:
            self.refresh_devices()

    def _new_item(self, kind: type[DeviceItem], name: str) -> DeviceItem:
        item = kind(self._state.devices[name])
        item.selected.connect(self._on_selected)
        item.menu_requested.connect(self.menu_requested)
        item.dropped.connect(self.dropped)
        item.drag_entered.connect(self.show_verdicts)
        return item

    def _fill(self) -> None:
        """Put everything into reading order; compact rows of simulated devices come below that word."""
        for part in (self._cards, self._rows):
            while (taken := part.takeAt(0)) is not None:
                inner = taken.layout()
                while inner is not None and inner.count():
                    inner.takeAt(0)
        headed = False
        for name, instances in families(self._state).items():
            item = self.items[name]
            part = self._cards if isinstance(item, DeviceCard) else self._rows
            if part is self._rows and self._state.devices[name].info.simulated and not headed:
                headed = True
                self._rows.addWidget(self._simulated)
            part.addWidget(item)
            if instances:
                inside = [self.items[instance] for instance in instances]
                part.addLayout(vbox(*inside, spacing=ROW_GAP_PX, margins=(INDENT_PX, 0, 0, 0)))
        self._simulated.setVisible(headed)
        previous: QWidget = self.add_button
        for following in (*self.items.values(), self.offer_button):
            QWidget.setTabOrder(previous, following)
            previous = following

    def show_progress(self, work: UnderWay) -> None:
        """Show long work on the cards of the devices that it keeps busy."""
        for name, item in self.items.items():
            item.set_progress(work.devices.get(name))

    def refresh_texts(self) -> None:
        """Take over the latest readings."""
        state = self._state
        troubles = state.troubles()
        for name, item in self.items.items():
            device = state.devices.get(name)
            if device is not None:
                item.refresh(device, state.problems, troubles)
        reasons = [problem.reason for problem in state.problems if problem.device is None]
        only_cpu = state.engine is not None and all(device.info.kind == "cpu" for device in state.devices.values())
        why = sentence(reasons[0]) if reasons else "Neither NVML nor torch reports one."
        unavailable = state.engine.virtual_unavailable if state.engine is not None else None
        then = "Add two virtual GPUs to try everything, simulated."
        if unavailable is not None:
            then = sentence(f"Virtual GPUs are not available either: {unavailable}")
        show_text(self.offer_words, f"No GPU found. {why} {then}")
        self.offer_button.setVisible(unavailable is None)
        self.offer.setVisible(only_cpu and not why_fixed(state))
        reason = why_fixed(state) or (unavailable and f"Virtual GPUs are not available: {unavailable}")
        self.add_button.setEnabled(not reason)
        self.add_button.setToolTip(reason or ADD_TIP)
        first, *others = (sentence(reason) for reason in dict.fromkeys(reasons or [""]))
        self.machine.set_full_text(first, "\n".join(others))
        self.machine.setVisible(bool(reasons) and not only_cpu)
        if self._room_for_cards() != self._full:  # that line came or went
            self.refresh_devices()
        if self._dragged:
            self.show_verdicts(self._dragged)

    def _on_selected(self, device_id: str) -> None:
        self.choose(device_id)
        self.selected.emit(device_id)

    def sizeHint(self) -> QSize:
        return QSize(276, 520)


def families(state: State) -> dict[str, list[str]]:
    """Every device with its MIG instances, in the order on screen; an instance whose card is not listed counts as
    itself."""
    result: dict[str, list[str]] = {
        name: []
        for name, device in state.devices.items()
        if device.info.parent is None or device.info.parent not in state.devices
    }
    for name, device in state.devices.items():
        if name not in result and device.info.parent is not None:
            result.setdefault(device.info.parent, []).append(name)
    return result
