"""The devices of a split: the budget of each, and how much of it the plan uses; blocks can be dropped on them. Main
thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PySide6.QtCore import QRectF, Signal
from PySide6.QtGui import (
    QColor,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QPainter,
    QPainterPath,
    QPen,
)
from PySide6.QtWidgets import QWidget

from devexplorer.core.base import BadInput, Findings, bytes_text, parse_bytes
from devexplorer.gui.split.blocks import decode
from devexplorer.gui.widgets import (
    CHIP_PX,
    CPU,
    RIGHT,
    Look,
    Picture,
    Role,
    chip_width,
    current_theme,
    device_colour,
    grid,
    label,
    line_edit,
    paint_device,
    set_look,
    vbox,
)

BAR_PX = 8
FIELD_PX = 92
AUTOMATIC = "what is free"
"""Stands in a field whose budget the engine finds out."""


class ShareBar(Picture):
    """How much of a budget is used: in the device's colour, in that of warnings beyond it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._device = CPU
        self._used, self._budget = 0, 0
        self.setFixedHeight(BAR_PX)

    @property
    def over(self) -> bool:
        """Whether more is used than there is."""
        return self._used > self._budget

    def show_share(self, used: int, budget: int, device: int) -> None:
        """Show `used` of `budget` bytes; `device`: its palette index."""
        self._used, self._budget, self._device = used, budget, device
        self.update()

    def draw(self, painter: QPainter) -> None:
        whole = QRectF(self.rect())
        outline = QPainterPath()
        outline.addRoundedRect(whole, 2, 2)
        painter.setClipPath(outline)
        painter.fillRect(whole, current_theme().bar_free)
        scale = max(self._used, self._budget, 1)
        inside = whole.width() * min(self._used, self._budget) / scale
        painter.fillRect(
            QRectF(0, 0, max(inside, 1.0 if self._used else 0.0), whole.height()), QColor(device_colour(self._device))
        )
        if self.over:
            beyond = QRectF(inside, 0, whole.width() - inside, whole.height())
            painter.fillRect(beyond, current_theme().panel)
            # after a gap: a device's colour can be close to it
            painter.fillRect(beyond.adjusted(2, 0, 0, 0), current_theme().warning)


class Share(Picture):
    """One device: its chip, its budget to type, its bar. Blocks that are dropped here go there."""

    dropped = Signal(object, str)
    """Places of blocks, and the device."""
    edited = Signal()

    def __init__(self, device: str, look: Look) -> None:
        super().__init__(f"share of {device}")
        self.device, self._look = device, look
        self._bytes: int | None = None
        """The exact budget of the text in the field; None: it was typed, or there is none."""
        self._target = False
        self.setAcceptDrops(True)
        self.field = line_edit(
            placeholder=AUTOMATIC,
            name=f"budget of {device}",
            width_px=FIELD_PX,
            tip="Bytes of the model that may be here, for example 12 GiB; 0 leaves the device out",
        )
        self.field.textEdited.connect(self._on_edit)
        self.bar = ShareBar(f"used of the budget of {device}")
        self.words = label(role=Role.LABEL, words="dim", align=RIGHT)
        places = grid(8, 0, self)
        places.setContentsMargins(6, 1, 6, 1)
        places.setColumnStretch(1, 1)
        places.setColumnMinimumWidth(0, chip_width(device) + 8)  # the chip is painted there
        places.addWidget(self.words, 0, 1)
        places.addWidget(self.bar, 1, 1)
        places.addWidget(self.field, 0, 2, 2, 1)

    def budget(self) -> int | None:
        """Bytes; None: not given. `BadInput` when what was typed is no number of bytes."""
        if self._bytes is not None:
            return self._bytes
        text = self.field.text().strip()
        if not text:
            return None
        try:
            return parse_bytes(text)
        except BadInput as error:
            raise BadInput(f"{self.device}: {error}") from error

    def set_budget(self, size: int | None) -> None:
        """Write a budget into the field; None: the engine finds it out."""
        self._bytes = size
        if size is None:
            text = ""
        elif size == 0:
            text = "0"
        else:
            text = bytes_text(size)
        self.field.setText(text)
        self.field.setCursorPosition(0)

    def show_use(self, used: int | None, budget: int | None) -> None:
        """What the plan puts here; None: there is no plan."""
        index, simulated = self._look(self.device)
        self.bar.show_share(used or 0, budget or 0, index)
        over = used is not None and used > (budget or 0)
        if used is None:
            shown = described = "budget"
        elif not budget and not used:
            shown, described = "left out", "left out of the plan"
        else:
            shown = f"{'▲ ' if over else ''}{bytes_text(used)} of"
            described = f"{bytes_text(used)} of {bytes_text(budget or 0)}" + (
                f", {bytes_text(used - (budget or 0))} too much" if over else ""
            )
        self.words.setText(shown)
        self.words.setToolTip(f"{described}{' (a simulated device)' if simulated else ''}")
        set_look(self.words, "warning" if over else "dim")
        self.bar.setAccessibleDescription(described)

    def _on_edit(self) -> None:
        self._bytes = None
        self.edited.emit()

    # --- drops

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if decode(event.mimeData()):
            self._mark(True)
            event.acceptProposedAction()

    def dragLeaveEvent(self, _event: QDragLeaveEvent) -> None:
        self._mark(False)

    def dropEvent(self, event: QDropEvent) -> None:
        self._mark(False)
        event.acceptProposedAction()
        self.dropped.emit(decode(event.mimeData()), self.device)

    def _mark(self, target: bool) -> None:
        self._target = target
        self.update()

    def draw(self, painter: QPainter) -> None:
        if self._target:
            painter.setPen(QPen(QColor(current_theme().accent), 1.5))
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 5, 5)
        middle = self.field.geometry().center().y()
        chip = QRectF(6.5, middle - CHIP_PX / 2 + 0.5, chip_width(self.device), CHIP_PX - 1)
        paint_device(painter, chip, self.device, self._look)


class Shares(QWidget):
    """All devices, one below the other."""

    dropped = Signal(object, str)
    edited = Signal()

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look
        self.rows: dict[str, Share] = {}
        self._layout = vbox(None, spacing=2, parent=self)

    def set_devices(self, devices: Sequence[str]) -> None:
        """Show these; what was typed for those that stay is kept."""
        if list(self.rows) == list(devices):
            return
        old, self.rows = self.rows, {}
        for share in old.values():
            self._layout.removeWidget(share)
        for place, device in enumerate(devices):
            if device in old:
                share = old.pop(device)
            else:
                share = Share(device, self._look)
                share.dropped.connect(self.dropped)
                share.edited.connect(self.edited)
            self.rows[device] = share
            self._layout.insertWidget(place, share)
        for share in old.values():
            share.setParent(None)
            share.deleteLater()

    def set_budgets(self, budgets: Mapping[str, int] | None) -> None:
        """Write these into the fields, 0 for others; None: the engine finds them out."""
        for device, share in self.rows.items():
            share.set_budget(None if budgets is None else budgets.get(device, 0))

    def budgets(self) -> dict[str, int]:
        """The values of the fields, empty ones left out; `BadInput` with everything that is no number."""
        findings = Findings()
        budgets = {device: findings.checked(share.budget) for device, share in self.rows.items()}
        findings.demand_none()
        return {device: budget for device, budget in budgets.items() if budget is not None}
