"""Fields that choose devices: one from a list, or several from a menu of checks that stays open. Main thread."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QApplication, QComboBox, QLineEdit, QMenu, QPushButton, QToolButton

from devexplorer.core.session import State
from devexplorer.gui.widgets import Choice

WIDEST = "vgpu:10, vgpu:11"
"""Of what is chosen as much is shown as this takes: no choice moves the buttons behind it."""


class DeviceChoice(QToolButton):
    """One or several usable devices. Until the user picks, it is the accelerator whose card is selected, or else the
    first there is, or the CPU."""

    changed = Signal()
    picked = Signal()
    """Somebody has chosen, which a list of devices that came does not."""

    def __init__(self, state: State) -> None:
        super().__init__(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        self._state = state
        self._chosen: list[str] = []
        self._picked = False
        self._preferred: str | None = None
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._menu = QMenu(self)
        self._menu.installEventFilter(self)
        self.setMenu(self._menu)
        self.setText(f"{WIDEST} ▾")
        self.setFixedWidth(self.sizeHint().width())
        self.refresh()

    @property
    def chosen(self) -> tuple[str, ...]:
        """Ids of the chosen devices, in the order of the cards."""
        return tuple(self._chosen)

    def choose(self, devices: Iterable[str]) -> None:
        """Choose exactly these devices; those that cannot be used are left out."""
        wanted = set(devices)
        self._picked = True
        self._take([name for name in self._state.usable_devices if name in wanted])
        self.picked.emit()

    def prefer(self, device: str | None) -> None:
        """The card of this device is selected."""
        self._preferred = device
        self.refresh()

    def refresh(self) -> None:
        """Follow the list of devices."""
        usable = self._state.usable_devices
        kept = [name for name in usable if name in self._chosen] if self._picked else []
        if [action.data() for action in self._menu.actions()] != usable:
            self._menu.clear()
            for name in usable:
                info = self._state.devices[name].info
                action = self._menu.addAction(f"{name}   {info.name}{'  simulated' if info.simulated else ''}")
                action.setData(name)
                action.setCheckable(True)
                action.triggered.connect(lambda checked, device=name: self._toggle(device, checked))
        self._take(kept or self._first(usable))

    def _first(self, usable: list[str]) -> list[str]:
        """What is chosen until the user picks."""
        accelerators = [name for name in usable if name != "cpu"]
        return [self._preferred] if self._preferred in accelerators else (accelerators or usable)[:1]

    def _toggle(self, device: str, checked: bool) -> None:
        self.choose([name for name in self._chosen if name != device] + ([device] if checked else []))

    def _take(self, devices: list[str]) -> None:
        differs = devices != self._chosen
        self._chosen = devices
        for action in self._menu.actions():
            action.setChecked(action.data() in devices)
        words = ", ".join(devices) if len(devices) <= 2 else f"{len(devices)} devices"
        metrics = self.fontMetrics()
        room = metrics.horizontalAdvance(WIDEST)
        self.setText(f"{metrics.elidedText(words or 'no device', Qt.TextElideMode.ElideRight, room)} ▾")
        self.setToolTip("Devices to measure: " + (", ".join(devices) or "none"))
        self.setAccessibleName(f"Devices: {', '.join(devices) or 'none'}")
        if differs:
            self.changed.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """A click or Space on a check toggles it and leaves the menu open; a click elsewhere goes there, too."""
        if isinstance(event, QMouseEvent) and event.type() == QEvent.Type.MouseButtonPress and watched is self._menu:
            under = QApplication.widgetAt(event.globalPosition().toPoint())
            outside = not self._menu.rect().contains(event.position().toPoint())
            if outside and under is not None and under.isEnabled():
                if isinstance(under, QPushButton):
                    QTimer.singleShot(0, under, under.click)
                elif isinstance(under, QComboBox):
                    QTimer.singleShot(0, under, under.showPopup)
                elif isinstance(under, QLineEdit):
                    under.setFocus()
                    select = partial(_select, under, under.text())
                    for wait_ms in (0, QApplication.doubleClickInterval()):  # a second click would only set the cursor
                        QTimer.singleShot(wait_ms, under, select)
        is_click = isinstance(event, QMouseEvent) and event.type() == QEvent.Type.MouseButtonRelease
        is_space = (
            isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress and event.key() == Qt.Key.Key_Space
        )
        action = self._menu.activeAction() if watched is self._menu and (is_click or is_space) else None
        if action is None:
            return super().eventFilter(watched, event)
        action.trigger()
        return True


def _select(field: QLineEdit, text: str) -> None:
    """All of it, unless something has been typed meanwhile."""
    if field.text() == text:
        field.selectAll()


class AllDevices(DeviceChoice):
    """Until the user picks, it is every device; virtual ones only where there is no real accelerator: the two have no
    clock in common."""

    def _first(self, usable: list[str]) -> list[str]:
        real = [name for name in usable if not self._state.devices[name].info.simulated]
        return real if any(name != "cpu" for name in real) else usable


class AlikeDevices(DeviceChoice):
    """Until the user picks, it is every accelerator of one sort, real before virtual; with one real one the CPU as
    well."""

    def _first(self, usable: list[str]) -> list[str]:
        real = [name for name in usable if not self._state.devices[name].info.simulated]
        virtual = [name for name in usable if name not in real]
        sorts = ([name for name in real if name != "cpu"], real, virtual)
        return next((sort for sort in sorts if len(sort) > 1), usable)


class DeviceField(Choice):
    """One usable device; `without_cpu` leaves the CPU out. Until the user picks, it is one that holds the object, or
    else the first accelerator."""

    def __init__(self, state: State, *, without_cpu: bool = False) -> None:
        super().__init__("Device")
        self._state, self._without_cpu = state, without_cpu
        self._picked = False
        self.held: tuple[str, ...] = ()
        """Devices that hold the object that this is about."""
        self.activated.connect(self._pick)
        self.refresh()

    def _pick(self) -> None:
        self._picked = True

    def refresh(self) -> None:
        """Follow the list of devices."""
        usable = sorted(self._state.usable_devices, key=lambda name: name == "cpu")  # the CPU last
        if self._without_cpu:
            usable = [name for name in usable if name != "cpu"]
        infos = [self._state.devices[name].info for name in usable]
        self.offer((info.id, f"{info.id}{' (simulated)' if info.simulated else ''}", info.name) for info in infos)
        if not self._picked:
            holding = [name for name in usable if name in self.held]
            self.choose(next((name for name in (*holding, *usable) if name != "cpu"), "cpu"))
