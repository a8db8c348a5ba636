"""The rules of alerts as a form: on or off, the two thresholds, how long; more rules for other metrics. Main thread."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import msgspec
from PySide6.QtCore import QEvent, QObject, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QResizeEvent
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QGridLayout,
    QMenu,
    QPushButton,
    QScrollArea,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from devexplorer.core.alerts.rules import (
    AUTO_CLEARS_BELOW_C,
    DEFAULT_RULES,
    LONGEST_S,
    QUANTITIES,
    Quantity,
    Rule,
    complete,
    figure_text,
    limits,
    new_rule,
)
from devexplorer.core.telemetry.metrics import UNITS
from devexplorer.gui.widgets import (
    EDGE_PX,
    Role,
    ScrollArea,
    check_box,
    give_room,
    grid,
    hbox,
    holder,
    label,
    menu_button,
    push_button,
    thin_line,
    vbox,
)

GIB = 1 << 30
THRESHOLD_PX, SECONDS_PX, SIDE_PX, DEVICES_PX, GAP_PX, HEADER_PX = 88, 72, 88, 64, 6, 24
AUTO = "auto"
LARGEST = 2_000_000_000
"""What a spin box holds."""
SIDE_TIP = "Whether values that are too high or too low raise the alert."
RAISE_TIP = "The alert is raised when the value reaches this figure and stays there for the seconds on the right."
CLEAR_TIP = "It is cleared when the value is back at this figure for as long. Between the two figures nothing changes."
SECONDS_TIP = "How long the value must stay past a figure, both to raise the alert and to clear it."
DEVICES_TIP = "Which devices the rule is about."
_HEADERS = (
    ("rule", ""), ("devices", DEVICES_TIP), ("when", SIDE_TIP), ("raise at", RAISE_TIP), ("clear at", CLEAR_TIP),
    ("for", SECONDS_TIP),
)  # fmt: skip
_GROUPS = (
    ("Load", ("utilization", "memory_utilization", "encoder", "decoder")),
    ("Memory", ("memory_used", "memory_free", "memory_reserved")),
    ("Power and fan", ("power", "energy", "fan")),
    ("Clocks", ("sm_clock", "memory_clock", "graphics_clock", "video_clock")),
    ("PCIe and NVLink", ("pcie", "nvlink")),
    ("ECC errors", ("ecc",)),
)
"""The menus of “Add rule”: their names, and how the ids of their quantities begin."""
_LINES = 2
"""Of the grid for each rule: its controls, and what is wrong with them."""


class _Threshold(QSpinBox):
    """A whole number with its unit, and below all of them `auto` where the card can decide."""

    def __init__(self, quantity: Quantity) -> None:
        super().__init__()
        self.scale = GIB if quantity.unit in ("bytes", "bytes_s") else 1
        unit = {"bytes": "GiB", "bytes_s": "GiB/s"}.get(quantity.unit, UNITS[quantity.unit])
        self._auto = bool(quantity.auto)
        self.first = 85
        """What one step up from `auto` leads to."""
        if quantity.unit == "percent":
            highest = 100
        elif self._auto:
            highest = 150
        else:
            highest = LARGEST
        self.setRange(0, highest)
        self.setSuffix(f" {unit}" if unit else "")
        if self._auto:
            self.setSpecialValueText(AUTO)
        self.setKeyboardTracking(False)  # a figure counts when it is complete
        self.setFixedWidth(THRESHOLD_PX)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)  # the wheel scrolls the form, not the figure under it
        give_room(self)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        QTimer.singleShot(0, self.selectAll)  # after the click: what is typed is a new figure

    @property
    def figure(self) -> float | None:
        """In the quantity's unit; None: the card decides."""
        return None if self._auto and self.value() == self.minimum() else float(self.value() * self.scale)

    def show_figure(self, figure: float | None) -> None:
        """Show without a signal."""
        self.blockSignals(True)
        self.setValue(self.minimum() if figure is None else round(figure / self.scale))
        self.blockSignals(False)

    def stepBy(self, steps: int) -> None:
        if self._auto and steps > 0 and self.value() == self.minimum():
            self.setValue(self.first)
        else:
            super().stepBy(steps)


class _Row(QObject):
    """The controls of one rule; `changed` when the user made another rule of them.

    Figures that contradict each other make no rule: the line below says so, and the rule stays what it was.
    """

    changed = Signal()

    def __init__(self, rule: Rule, parent: QObject, known: Callable[[], Iterable[str]]) -> None:
        super().__init__(parent)
        self.rule, self._known = rule, known
        self._chosen = rule.raise_at, rule.clear_at
        """Where the user last chose both; “clear at” comes along with “raise at” from there."""
        quantity = QUANTITIES[rule.metric]
        self._quantity = quantity
        self.check = check_box(tip=quantity.meaning)
        self.check.setChecked(rule.enabled)
        self.check.setText(quantity.label)
        self.devices = menu_button()
        self.devices.setFixedWidth(DEVICES_PX)
        self._menu = self.devices.menu()
        self._menu.aboutToShow.connect(self._fill_menu)
        self.side = QComboBox()
        self.side.addItems(["too high", "too low"])
        self.side.setCurrentIndex(int(limits(rule).below))
        self.side.setFixedWidth(SIDE_PX)
        self.side.setToolTip(SIDE_TIP)
        self.side.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.raise_at, self.clear_at = _Threshold(quantity), _Threshold(quantity)
        self.seconds = QSpinBox(suffix=" s", maximum=int(LONGEST_S))
        self.seconds.setKeyboardTracking(False)
        self.seconds.setFixedWidth(SECONDS_PX)
        self.seconds.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.seconds.setValue(round(rule.seconds))
        give_room(self.seconds)
        self.remove: QPushButton | None = None
        if rule.metric not in {default.metric for default in DEFAULT_RULES}:
            self.remove = push_button(
                "✕", look="quiet", name=f"Remove the rule for {quantity.label}", tip="Remove this rule"
            )
        self.problem = label("", Role.LABEL, "error", wrap=True)
        for control, text in (
            (self.devices, "devices"),
            (self.side, "when"),
            (self.raise_at, "raise at"),
            (self.clear_at, "clear at"),
            (self.seconds, "for how many seconds"),
        ):
            control.setAccessibleName(f"{quantity.label}: {text}")
        self.raise_at.show_figure(rule.raise_at)
        self.clear_at.show_figure(rule.clear_at)
        self._show()
        self.check.toggled.connect(self._take)
        self.raise_at.valueChanged.connect(self._raise)
        for box in (self.clear_at, self.seconds):
            box.valueChanged.connect(self._take)
        self.side.activated.connect(self._turn)

    def widgets(self) -> tuple[QWidget | None, ...]:
        """One for each column; None where there is nothing to choose."""
        chosen = (None, None, None) if self._quantity.fixed else (self.side, self.raise_at, self.clear_at)
        return (self.check, self.devices, *chosen, self.seconds, self.remove)

    def _fill_menu(self) -> None:
        """All, or any of the devices that there are or that the rule is about."""
        self._menu.clear()
        chosen = self.rule.devices
        for text, name in (("All devices", ""), *((name, name) for name in dict.fromkeys((*self._known(), *chosen)))):
            action = self._menu.addAction(text, functools.partial(self._choose, name))
            action.setCheckable(True)
            action.setChecked(name in chosen if name else not chosen)

    def _choose(self, name: str) -> None:
        """About this device as well, or no longer; empty: about all."""
        now = self.rule.devices
        devices = tuple(one for one in now if one != name) if name in now else (*now, name)
        self.rule = msgspec.structs.replace(self.rule, devices=devices if name else ())
        self._show()
        self.changed.emit()

    @property
    def _below(self) -> bool:
        return self.side.currentIndex() == 1

    def _turn(self) -> None:
        """The other side: what cleared the alert raises it now."""
        raise_at, clear_at = self.raise_at.figure, self.clear_at.figure
        if raise_at is not None and self._below != limits(self.rule).below:
            self.raise_at.show_figure(clear_at)
            self.clear_at.show_figure(raise_at)
        self._take()

    def _raise(self) -> None:
        """“clear at” stays as it was chosen where that makes a rule with another “raise at”; else it comes along, as
        far away as then. One that had to stop at 0 does not stay there."""
        raise_at, (was_raised_at, clear_at) = self.raise_at.figure, self._chosen
        if raise_at is None or was_raised_at is None or clear_at is None:  # the card decides, or did until now
            self._take()
            return
        chosen = self._chosen
        if self._contradiction(raise_at, clear_at):
            most = self.clear_at.maximum() * self.clear_at.scale
            clear_at = min(max(raise_at + clear_at - was_raised_at, 0.0), most)
        self.clear_at.show_figure(clear_at)
        self._take()
        self._chosen = chosen

    def _take(self) -> None:
        raise_at, clear_at, seconds = self.raise_at.figure, self.clear_at.figure, float(self.seconds.value())
        rule = self.rule
        if self._quantity.fixed or raise_at == _whole(self.raise_at, rule.raise_at):
            raise_at = rule.raise_at  # not touched: a figure that is not whole stays as it is
        if self._quantity.fixed or clear_at == _whole(self.clear_at, rule.clear_at):
            clear_at = rule.clear_at
        if raise_at is None:
            clear_at = None
            self.side.setCurrentIndex(0)
        elif clear_at is None or rule.raise_at is None:  # the card has decided until now: a figure to begin with
            clear_at = max(raise_at - 5, 1.0)
        if clear_at != self.clear_at.figure:
            self.clear_at.show_figure(clear_at)
        if seconds == round(rule.seconds):
            seconds = rule.seconds
        self.problem.setText(self._contradiction(raise_at, clear_at))
        if not self.problem.text():
            self._chosen = raise_at, clear_at
            self.rule = msgspec.structs.replace(
                rule, enabled=self.check.isChecked(), raise_at=raise_at, clear_at=clear_at, seconds=seconds
            )
        elif rule.enabled != self.check.isChecked():
            self.rule = msgspec.structs.replace(rule, enabled=self.check.isChecked())
        self._show()
        if self.rule != rule:
            self.changed.emit()

    def _contradiction(self, raise_at: float | None, clear_at: float | None) -> str:
        """Why these figures make no rule; empty: they do. What low values raise is cleared by higher ones, and the
        other way round."""
        if self._quantity.fixed or raise_at is None or clear_at is None:
            return ""
        if (clear_at > raise_at) if self._below else (clear_at < raise_at):
            return ""
        unit, where = self._quantity.unit, "above" if self._below else "below"
        text = f"“clear at” must be {where} “raise at” ({figure_text(raise_at, unit)})."
        if self.rule.raise_at is None:
            return f"{text} Until then the card decides."
        now = limits(self.rule)
        return (
            f"{text} Until then the rule stays at {figure_text(now.raise_at, unit)} and"
            f" {figure_text(now.clear_at, unit)}."
        )

    def _show(self) -> None:
        on, quantity, devices = self.check.isChecked(), self._quantity, self.rule.devices
        self.devices.setEnabled(on)
        self.devices.setText(f"{len(devices)}" if devices else "all")
        self.devices.setToolTip(f"{DEVICES_TIP} Now: {', '.join(devices) or 'all'}.")
        auto = self.raise_at.figure is None
        self.raise_at.first = round(limits(self.rule).raise_at) if quantity.auto else 0
        below = f"{AUTO_CLEARS_BELOW_C} °C below the figure at which it is raised"
        by_card = quantity.auto and auto
        for box, text, decided in ((self.raise_at, RAISE_TIP, quantity.auto), (self.clear_at, CLEAR_TIP, below)):
            box.setEnabled(on and not (auto and box is self.clear_at))
            box.setToolTip(self.problem.text() or (f"{AUTO}: {decided}." if by_card else text))
        self.side.setEnabled(on and not auto)
        self.seconds.setEnabled(on)
        self.seconds.setToolTip(SECONDS_TIP)
        self.problem.setVisible(bool(self.problem.text()))


def _whole(box: _Threshold, figure: float | None) -> float | None:
    """What `box` says while it shows `figure`."""
    return figure if figure is None else float(round(figure / box.scale) * box.scale)


class _RulesArea(ScrollArea):
    """Scrolls its rules below their heading."""

    def __init__(self, rules: QVBoxLayout, heading: QGridLayout) -> None:
        super().__init__(rules, "Rules of alerts")
        self._heading = holder(heading)
        self._heading.setParent(self)
        self.setViewportMargins(0, HEADER_PX, 0, 0)
        self.verticalScrollBar().rangeChanged.connect(self._keep_focus_in_sight)

    def _keep_focus_in_sight(self) -> None:
        """A rule that was added gets its place only when the range has grown."""
        focus = QApplication.focusWidget()
        if focus is not None and self.content.isAncestorOf(focus):
            self.ensureWidgetVisible(focus)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        rules = self.viewport().geometry()
        self._heading.setGeometry(rules.x(), rules.y() - HEADER_PX, rules.width(), HEADER_PX)

    def sizeHint(self) -> QSize:
        frame = 2 * self.frameWidth()
        return self.content.sizeHint() + QSize(
            frame, frame + HEADER_PX
        )  # Qt's is that of the first rules, without their heading

    def minimumSizeHint(self) -> QSize:
        rules, least = self.content.minimumSizeHint(), super().minimumSizeHint()
        width = rules.width() + self.verticalScrollBar().sizeHint().width() + 2 * self.frameWidth()
        return QSize(width, HEADER_PX + least.height())


def _columns() -> QGridLayout:
    """The rules, and their heading, have the same columns."""
    result = grid(GAP_PX, 4)
    result.setContentsMargins(EDGE_PX, 0, EDGE_PX, 0)
    result.setColumnStretch(0, 1)
    for place, width in enumerate((DEVICES_PX, SIDE_PX, THRESHOLD_PX, THRESHOLD_PX, SECONDS_PX), 1):
        result.setColumnMinimumWidth(place, width)
    return result


class AlertRulesForm(QWidget):
    """`rules_changed` carries all rules as a `tuple[Rule, ...]`."""

    rules_changed = Signal(object)

    def __init__(self, rules: Iterable[Rule], devices: Callable[[], Iterable[str]] = tuple) -> None:
        """`devices`: the ids of those that a rule can be about."""
        super().__init__()
        self._devices = devices
        self.rows: list[_Row] = []
        self._grid, self._heading = _columns(), _columns()
        self._grid.setContentsMargins(EDGE_PX, 2, EDGE_PX, 8)
        for place, (text, meaning) in enumerate(_HEADERS):
            self._heading.addWidget(label(text, Role.LABEL, "dim", tip=meaning), 0, place)
        self.scroll_area = _RulesArea(vbox(self._grid, None, spacing=0), self._heading)
        self.scroll_area.content.installEventFilter(self)
        self.desktop_check = check_box(
            "Desktop notifications",
            tip="Alerts, at most one message a minute for each rule and device, but no notices; and the end of whatever"
            " took more than a minute, while no window of DevExplorer is active.",
        )
        self.desktop_check.setChecked(True)
        self.add_button = menu_button("Add rule", tip="A rule for any quantity; one that has a rule leads to it")
        self._menu = self.add_button.menu()
        self._discarded: tuple[Rule, ...] | None = None
        """The user's rules, from the click on Defaults until the next change."""
        self.defaults_button = push_button("Defaults", self._defaults)
        foot = hbox(self.desktop_check, None, self.add_button, self.defaults_button, margins=(EDGE_PX, 4, EDGE_PX, 4))
        vbox((self.scroll_area, 1), thin_line(), foot, spacing=0, parent=self)
        self.show_rules(rules)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """As they are shown."""
        return tuple(row.rule for row in self.rows)

    def show_rules(self, rules: Iterable[Rule]) -> None:
        """Show these rules, completed by the defaults, without a signal."""
        for row in self.rows:
            row.deleteLater()
        while (item := self._grid.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        self.rows = [_Row(rule, self, self._devices) for rule in complete(rules)]
        room = 0
        for number, row in enumerate(self.rows):
            line = _LINES * number
            for place, widget in enumerate(row.widgets()):
                if widget is not None:
                    widget.installEventFilter(self)
                    self._grid.addWidget(widget, line, place)
            self._grid.addWidget(row.problem, line + 1, 0, 1, len(_HEADERS))
            row.problem.setVisible(bool(row.problem.text()))
            row.changed.connect(self._tell)
            if row.remove is not None:
                room = max(room, row.remove.sizeHint().width())
                row.remove.clicked.connect(functools.partial(self._remove, row.rule.metric))
        for columns in (self._grid, self._heading):
            columns.setColumnMinimumWidth(len(_HEADERS), room)
        self._fill_menu()
        self._show_defaults()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The wheel over a spin box scrolls the form: a threshold is not changed in passing. More rules take more
        room."""
        if event.type() == QEvent.Type.LayoutRequest and watched is self.scroll_area.widget():
            self.scroll_area.updateGeometry()
        if event.type() == QEvent.Type.Wheel and isinstance(watched, QSpinBox | QComboBox) and not watched.hasFocus():
            event.ignore()
            return True
        return super().eventFilter(watched, event)

    def _fill_menu(self) -> None:
        """Of what rules are about at first, then a menu for each kind of reading."""
        self._menu.clear()
        taken = {row.rule.metric: number for number, row in enumerate(self.rows)}
        menus: dict[str, QMenu] = {}
        for quantity in QUANTITIES.values():
            group = _group(quantity)
            if group and group not in menus:
                menus[group] = self._menu.addMenu(group)
            menu = menus.get(group, self._menu)
            if quantity.id in taken:
                menu.addAction(f"{quantity.label} (has a rule)", functools.partial(self._go_to, taken[quantity.id]))
            else:
                menu.addAction(quantity.label, functools.partial(self._add, quantity.id))

    def _add(self, metric: str) -> None:
        self._replace((*self.rules, new_rule(metric)))
        self._go_to(-1)

    def _go_to(self, number: int) -> None:
        row = self.rows[number]
        control = row.raise_at if row.raise_at.parent() is not None and row.raise_at.isEnabled() else row.check
        control.setFocus()
        QTimer.singleShot(0, control, functools.partial(_show_control, control))  # it has its place then

    def _remove(self, metric: str) -> None:
        self._replace(rule for rule in self.rules if rule.metric != metric)

    def _replace(self, rules: Iterable[Rule]) -> None:
        before = self.rules
        self.show_rules(tuple(rules))
        if self.rules != before:
            self._tell()

    def _defaults(self) -> None:
        before = self.rules
        self._replace(DEFAULT_RULES if self._discarded is None else self._discarded)
        self._discarded = before if self.rules == DEFAULT_RULES else None
        self._show_defaults()

    def _tell(self) -> None:
        self._discarded = None
        self._show_defaults()
        self.rules_changed.emit(self.rules)

    def _show_defaults(self) -> None:
        changed, undoes = self.rules != DEFAULT_RULES, self._discarded is not None
        if undoes:
            tip = "Restore the rules that Defaults replaced"
        elif changed:
            tip = "Put back the rules that come with DevExplorer"
        else:
            tip = "These are the defaults."
        self.defaults_button.setText("Undo defaults" if undoes else "Defaults")
        self.defaults_button.setEnabled(changed or undoes)
        self.defaults_button.setToolTip(tip)


def _group(quantity: Quantity) -> str:
    """The menu that has it; empty: the first one."""
    if quantity.meaning:
        return ""
    metric = quantity.id
    return next((name for name, begins in _GROUPS if metric.startswith(begins)), "")


def _show_control(control: QWidget) -> None:
    area: QWidget | None = control
    while area is not None:  # this form's, and where it is shown whole, the one around it
        if isinstance(area, QScrollArea):
            area.ensureWidgetVisible(control)
        area = area.parentWidget()
