"""Colours, fonts and the style of the window, dark and light. Main thread only.

Colour means device: `device_colour` gives the one colour that a device has in its card, its chips and its curves.
Every text has a contrast of at least 4.5:1 with what it is on (WCAG 2.2, 1.4.3); a test computes it.

Who paints asks `current_theme` for colours: Qt repaints every widget after `apply`. Who keeps what it has made from
colours (curves, pixmaps, formatted text) makes it again at `theme_changed`, also while it is hidden. A row of a
table keeps a `Colour` instead, which means something in every theme.

The stylesheet says what the palette cannot say about Qt's own widgets: no fonts and no sizes of text (see `font`). The
only images are ticks and arrows (`style-*.svg`). A widget asks for a look with dynamic properties: `look` on buttons,
on fields (`primary`, `quiet`, `copy`, `code`), `words` on labels (`dim`, `soft`, `warning`, `error`).

Tooltips are plain text, whoever sets them: Qt would show a text with tags as rich text, and names come from files and
other machines; an `<img>` of theirs would be loaded, and one that is a FIFO would stop the window for good. The
property is set before the first text (`QTipLabel` is polished when it is made). Labels are plain where they are made.
"""

from __future__ import annotations

import enum
from functools import cache
from importlib.resources import files
from string import Template
from typing import Literal

import msgspec
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QFontInfo, QGuiApplication, QPalette, QPen
from PySide6.QtWidgets import QApplication

from devexplorer.gui.widgets import screen_reader

LABEL_PX, TEXT_PX, NUMBER_PX, CODE_PX = 11, 13, 18, 12
"""Font sizes in pixels: labels and ticks, text, the one number of a card; code, whose fixed font looks larger."""

CPU = -1
"""The palette index of the CPU."""

DASHES: tuple[list[float], ...] = ([], [6.0, 3.0], [2.0, 2.0], [8.0, 3.0, 2.0, 3.0])
"""Dash patterns in pen widths: the CPU and eight accelerators are solid, the next eight dashed, and so on."""
DISTINCT_DASHES: tuple[list[float], ...] = (
    [], [9.0, 4.0], [2.0, 5.0], [10.0, 3.0, 2.0, 3.0], [16.0, 3.0], [10.0, 3.0, 2.0, 3.0, 2.0, 3.0], [6.0, 8.0],
    [5.0, 2.0, 1.0, 2.0],
)  # fmt: skip
"""Of accelerators 0 to 7 where every line has its own; from the ninth on no colour has the same one again."""
CPU_DASHES, FIRST_SIMULATED_DASHES = [2.0, 2.0], [4.0, 3.0]


class Theme(msgspec.Struct, frozen=True):
    """Every colour of the window as `#RRGGBB`."""

    name: str
    is_dark: bool
    window: str
    """Behind the panels."""
    panel: str
    card: str
    field: str
    """In fields that can be filled: light ones must not look as if they were disabled."""
    button: str
    button_hover: str
    code: str
    """Behind code."""
    border: str
    """Round panels, between rows."""
    border_strong: str
    """Round cards, buttons and fields."""
    text: str
    soft: str
    """Paragraphs."""
    dim: str
    """Labels, units, secondary columns."""
    disabled: str
    """Controls that cannot be used now; exempt from the contrast rule, the tooltip says why."""
    accent: str
    """The primary button, the line below the chosen tab."""
    accent_text: str
    focus: str
    """The frame of what has the keyboard: at least 3:1 with what it is on."""
    selection: str
    hover: str
    bar_free: str
    bar_context: str
    bar_other: str
    simulated: str
    """Dashed outline of the badge."""
    warning: str
    error: str
    cpu: str
    devices: tuple[str, ...]
    """Accelerators 0 to 7; from the ninth on they come again with a dash pattern."""
    every_line_has_its_dashes: bool = False
    """Also the first devices differ in their dash patterns, not in colour alone."""

    @property
    def added(self) -> str:
        """Lines that a patch adds: the palette's green, which is readable on code."""
        return self.devices[2]


_FILE = files("devexplorer.resources").joinpath("themes.json")
THEMES = {theme.name: theme for theme in msgspec.json.decode(_FILE.read_bytes(), type=list[Theme])}
"""All that there are, in the order in which the user goes through them: dark, light, one in which every text has 7:1.

Devices have Okabe's and Ito's colours for colour-blind readers: brightened on dark; on light darkened until they reach
4.5:1 as text on every background, and moved apart again for colour-blind readers. A test measures both."""
DARK, LIGHT, CONTRAST = THEMES.values()

Tone = Literal["text", "soft", "dim", "warning", "error"]
"""A colour of the theme by its name: for what outlives a change of the theme."""
Colour = Tone | int
"""A tone, or the palette index of a device."""


class _Current(QObject):
    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.theme = DARK


_current = _Current()
theme_changed = _current.changed
"""The application has another theme now: palette, stylesheet and `current_theme` are those of the new one."""


def current_theme() -> Theme:
    """The theme of the application."""
    return _current.theme


class Role(enum.Enum):
    """What a text is, which decides its font."""

    LABEL = "label"
    TEXT = "text"
    STRONG = "strong"
    NUMBER = "number"
    CODE = "code"


def preferred() -> Theme:
    """For a first start: high contrast where the desktop asks for it (Qt 6.10 and newer know)."""
    hints = QGuiApplication.styleHints()
    preference = hints.accessibility().contrastPreference() if hasattr(hints, "accessibility") else None
    return DARK if preference != Qt.ContrastPreference.HighContrast else CONTRAST


def next_theme() -> Theme:
    """The one that comes after the current one."""
    order = list(THEMES.values())
    return order[(order.index(current_theme()) + 1) % len(order)]


def device_colour(index: int) -> str:
    """`#RRGGBB` of the device with this palette index (`core.session.state.Device.colour`); -1 is the CPU."""
    theme = current_theme()
    return theme.cpu if index < 0 else theme.devices[index % len(theme.devices)]


def colour_of(what: Colour) -> str:
    """`#RRGGBB` in the current theme."""
    return device_colour(what) if isinstance(what, int) else getattr(current_theme(), what)


def severity_tone(severity: str) -> Tone:
    """The tone of an error, a warning, or what is only worth knowing. Never without its sign or its word."""
    if severity == "error":
        return "error"
    if severity == "warning":
        return "warning"
    return "dim"


def device_dash(index: int, *, simulated: bool = False) -> list[float]:
    """Dash pattern in pen widths that distinguishes the ninth accelerator from the first, or every simulated device, or
    every device, from all others; empty for a solid line."""
    if simulated or current_theme().every_line_has_its_dashes:
        count = len(DISTINCT_DASHES)
        own = CPU_DASHES if index < 0 else DISTINCT_DASHES[(index + index // count) % count]
        return list(own or (FIRST_SIMULATED_DASHES if simulated else ()))
    return list(DASHES[0 if index < 0 else (index // len(current_theme().devices)) % len(DASHES)])


def device_pen(index: int, *, simulated: bool = False) -> QPen:
    """The pen for outlines and curves of a device; a simulated one is always dashed."""
    pen = QPen(QColor(device_colour(index)))
    if pattern := device_dash(index, simulated=simulated):
        pen.setDashPattern(pattern)
    return pen


def font(role: Role) -> QFont:
    """The font for `role`: the system's interface font with tabular digits, or its fixed font for code."""
    return QFont(_font(role))  # who gets it may change it


@cache
def _font(role: Role) -> QFont:
    if role is Role.CODE:
        chosen = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
        chosen.setStyleHint(QFont.StyleHint.Monospace)
        chosen.setPixelSize(CODE_PX)
        return chosen
    chosen = QFont(interface_family())
    chosen.setPixelSize({Role.LABEL: LABEL_PX, Role.NUMBER: NUMBER_PX}.get(role, TEXT_PX))
    chosen.setFeature(QFont.Tag("tnum"), 1)
    chosen.setFeature(QFont.Tag("calt"), 0)  # Inter would draw the x of 0x7f as a multiplication sign
    if role in (Role.STRONG, Role.NUMBER):
        chosen.setWeight(QFont.Weight.DemiBold)
    return chosen


@cache  # asked for every label; the answer cannot change while the application runs
def interface_family() -> str:
    """The system's interface font. Where none was ever chosen (fontconfig's "Sans Serif") Inter, if it is there."""
    family = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont).family()
    chosen_by_nobody = family in ("", "Sans Serif", "Sans", "sans-serif", "helvetica", "Helvetica")
    if chosen_by_nobody and QFontInfo(QFont("Inter")).family() == "Inter":
        return "Inter"
    return family


_PALETTE = {
    "Window": "window",
    "WindowText": "text",
    "Base": "panel",
    "AlternateBase": "card",
    "Text": "text",
    "PlaceholderText": "dim",
    "Button": "button",
    "ButtonText": "text",
    "ToolTipBase": "card",
    "ToolTipText": "text",
    "Highlight": "selection",
    "HighlightedText": "text",
    "Accent": "accent",
    "Link": "text",
    "Light": "border_strong",
    "Midlight": "border",
    "Mid": "border",
    "Dark": "border",
    "Shadow": "window",
}
"""Role of Qt's palette -> colour of the theme."""


def palette(theme: Theme) -> QPalette:
    """Qt's palette in the theme's colours."""
    result = QPalette()
    role = QPalette.ColorRole
    for which, colour in _PALETTE.items():
        result.setColor(role[which], QColor(getattr(theme, colour)))
    for text in (role.WindowText, role.Text, role.ButtonText):
        result.setColor(QPalette.ColorGroup.Disabled, text, QColor(theme.disabled))
    return result


def set_theme(theme: Theme) -> None:
    """Have this theme for what is painted by hand; `apply` has it for everything."""
    if theme is not _current.theme:
        _current.theme = theme
        theme_changed.emit()


def prepare(app: QApplication) -> None:
    """Style, font and interfaces of painted widgets, before the first widget is made: a button that is there already
    would keep its font."""
    if app.style().name() not in ("fusion", ""):  # below a stylesheet it has no name: then it was set before
        app.setStyle("Fusion")  # the one style that looks the same everywhere and follows the palette
    if app.font() != font(Role.TEXT):
        app.setFont(font(Role.TEXT))
    screen_reader.install()


def apply(app: QApplication, theme: Theme) -> None:
    """Give the whole application this theme: style, palette, fonts, stylesheet, and what was made from colours."""
    prepare(app)
    colours, sheet = palette(theme), stylesheet(theme)
    if app.palette() != colours:
        app.setPalette(colours)
    if app.styleSheet() != sheet:  # Qt would style every widget again, also with the sheet that it has
        app.setStyleSheet("")  # to replace a sheet takes Qt five times as long as to set one where there is none
        app.setStyleSheet(sheet)
    set_theme(theme)


_SHEET = Template("""
QToolTip {
  color: $text; background: $card; border: 1px solid $border_strong; padding: 4px 6px;
  qproperty-textFormat: PlainText;
}

QLabel[words="dim"] { color: $dim; }
QLabel[words="soft"] { color: $soft; }
QLabel[words="warning"] { color: $warning; }
QLabel[words="error"] { color: $error; }
QLabel#readout {
  color: $text; background: $card; border: 1px solid $border_strong; border-radius: 4px; padding: 4px 7px;
}

QPushButton, QToolButton {
  color: $text; background: $button; border: 1px solid $border_strong; border-radius: 5px; padding: 4px 11px;
}
QToolButton { padding: 3px 11px 2px 11px; }
QFileDialog QToolButton { padding: 2px; }
QPushButton:hover, QToolButton:hover { background: $button_hover; }
QPushButton:pressed, QToolButton:pressed, QPushButton:checked, QToolButton:checked { background: $border; }
QPushButton:focus, QToolButton:focus { border-color: $focus; }
QPushButton:disabled, QToolButton:disabled { color: $disabled; background: $panel; border-color: $border; }
QPushButton[look="primary"], QToolButton[look="primary"] {
  color: $accent_text; background: $accent; border-color: $accent;
}
QPushButton[look="primary"]:focus, QToolButton[look="primary"]:focus { border-color: $accent_text; }
QPushButton[look="primary"]:disabled, QToolButton[look="primary"]:disabled {
  color: $disabled; background: $panel; border-color: $border;
}
QPushButton[look="quiet"], QToolButton[look="quiet"] {
  color: $dim; background: transparent; border: 1px solid transparent; padding: 1px 6px;
}
QPushButton[look="quiet"]:hover, QToolButton[look="quiet"]:hover { color: $text; background: $button_hover; }
QPushButton[look="quiet"]:focus, QToolButton[look="quiet"]:focus { border-color: $focus; }
QPushButton[look="quiet"]:disabled, QToolButton[look="quiet"]:disabled { color: $disabled; }
QPushButton[words="error"] { color: $error; }
QPushButton[look="quiet"]:checked { color: $text; background: $border; }
QFrame#rail { background: $panel; border: 0; border-right: 1px solid $border; }
QToolButton[look="rail"] {
  color: $soft; background: transparent; border: 1px solid transparent; border-radius: 6px; padding: 5px 0 3px 0;
}
QToolButton[look="rail"]:hover { background: $button_hover; }
QToolButton[look="rail"]:checked { color: $text; background: $border; }
QToolButton[look="rail"]:focus { border-color: $focus; }
QToolButton[look="title"] {
  color: $text; background: transparent; border: 1px solid transparent; padding: 1px 4px;
}
QToolButton[look="title"]:hover { background: $button_hover; }
QToolButton[look="title"]:focus { border-color: $focus; }
QPushButton[look="copy"] { color: $dim; background: $code; border-radius: 4px; padding: 1px 6px; }
QPushButton[look="copy"]:hover { color: $text; }
QPushButton::menu-indicator, QToolButton::menu-indicator { width: 0; image: none; }

QLineEdit, QPlainTextEdit, QAbstractSpinBox, QComboBox {
  color: $text; background: $field; border: 1px solid $border_strong; border-radius: 5px; padding: 3px 7px;
  placeholder-text-color: $dim; selection-background-color: $accent; selection-color: $accent_text;
}
QLineEdit:focus, QPlainTextEdit:focus, QAbstractSpinBox:focus, QComboBox:focus { border-color: $focus; }
QLineEdit:disabled, QAbstractSpinBox:disabled, QComboBox:disabled { color: $disabled; background: $panel; }
QLineEdit[look="quiet"] { background: transparent; border: 1px solid transparent; padding: 1px 6px; }
QLineEdit[look="quiet"]:hover { border-color: $border_strong; }
QLineEdit[look="quiet"]:focus { background: $field; border-color: $focus; }
QPlainTextEdit[look="code"] { background: $code; border: 1px solid $border; padding: 8px 9px; }
QPlainTextEdit[look="code"]:focus { border-color: $focus; }
QPlainTextEdit[look="log"] { background: $panel; border: 1px solid transparent; border-radius: 0; padding: 7px 10px; }
QPlainTextEdit[look="log"]:focus { border-color: $focus; }
QTextEdit[look="block"] { color: $text; background: transparent; border: 0; padding: 0; }
QTextEdit[words="dim"] { color: $dim; }
QTextEdit[words="soft"] { color: $soft; }
QTextEdit[words="error"] { color: $error; }
QComboBox { padding-left: 9px; }
QComboBox:editable { padding-left: 7px; }
QComboBox::drop-down { border: 0; width: 20px; }
QComboBox::down-arrow, QAbstractSpinBox::down-arrow { image: url("$icons/style-down.svg"); width: 10px; height: 10px; }
QAbstractSpinBox { padding: 2px 18px 1px 7px; }
QComboBox QLineEdit { background: transparent; border: 0; padding: 0; }
QAbstractSpinBox QLineEdit { background: transparent; border: 0; padding: 0; }
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button { background: transparent; border: 0; width: 18px; }
QAbstractSpinBox::up-arrow { image: url("$icons/style-up.svg"); width: 10px; height: 10px; }
QCheckBox { spacing: 7px; }
QCheckBox::indicator, QTreeView::indicator, QListView::indicator {
  width: 14px; height: 14px; background: $field; border: 1px solid $bar_other; border-radius: 3px;
}
QCheckBox::indicator:focus { border-color: $focus; }
QCheckBox { border: 1px solid transparent; border-radius: 4px; padding: 0 2px; }
QCheckBox:focus { border-color: $focus; }
QCheckBox::indicator:checked, QTreeView::indicator:checked, QListView::indicator:checked {
  background: $accent; border-color: $accent; image: url("$icons/$tick.svg");
}
QCheckBox::indicator:disabled { background: $panel; border-color: $border; }
QComboBox QAbstractItemView {
  color: $text; background: $panel; border: 1px solid $border_strong; padding: 3px;
  selection-background-color: $selection; selection-color: $text; outline: 0;
}

QFrame#panel { background: $panel; border: 1px solid $border; border-radius: 6px; }
QFrame#panel QFrame#panel { border: 0; }
QWidget#panelHeader { border: 0; border-bottom: 1px solid $border; }
QFrame#veil { background: $veil; }
QFrame#offer { background: $card; border: 1px solid $border_strong; border-radius: 6px; }
QScrollArea, QScrollArea > QWidget > QWidget#scrolled { background: transparent; border: 0; }
QScrollArea { border: 1px solid transparent; }
QScrollArea#page { border: 0; }
QScrollArea:focus { border-color: $focus; }

QTreeView::branch:has-children:closed { image: url("$icons/style-right.svg"); }
QTreeView::branch:has-children:open { image: url("$icons/style-down.svg"); }
QTreeView, QTableView, QListView { color: $text; background: $panel; border: 0; outline: 0; }
QListView#boxed, QTreeView#boxed {
  background: $window; border: 1px solid $border_strong; border-radius: 5px; padding: 3px;
}
QListView#boxed:focus, QTreeView#boxed:focus { border-color: $focus; }
QListView#boxed::item { padding: 4px 6px; border-radius: 4px; }
QTreeView#boxed::item { padding: 4px 6px; }
QListView#boxed::item:selected, QTreeView#boxed::item:selected { color: $text; background: $selection; }
QHeaderView { background: $panel; border: 0; }
QHeaderView::section {
  color: $dim; background: $panel; border: 0; border-bottom: 1px solid $border; padding: 0 12px 0 0;
}
QHeaderView::section:first { padding-left: 12px; }

QMenu { color: $text; background: $panel; border: 1px solid $border_strong; padding: 4px; }
QMenu::item { padding: 5px 24px 5px 10px; border-radius: 4px; }
QMenu::item:selected { background: $selection; }
QMenu::item:disabled { color: $disabled; }
QMenu::icon { padding-left: 8px; }
QMenu::separator { height: 1px; background: $border; margin: 4px 6px; }

QTabWidget::pane { border: 0; border-top: 1px solid $border; }
QTabWidget::tab-bar { left: 2px; }
QTabBar { background: transparent; border: 0; }
QTabBar::tab {
  color: $dim; background: transparent; border: 0; border-bottom: 2px solid transparent;
  padding: 6px 0 4px 0; margin: 0 10px;
}
QTabBar::tab:hover { color: $text; }
QTabBar::tab:selected { color: $text; border-bottom-color: $accent; }
QTabBar::scroller { width: 44px; }
QTabBar QToolButton { background: $panel; border: 0; padding: 0; }
QTabBar QToolButton:hover { background: $button_hover; }
QTabBar QToolButton::left-arrow { image: url("$icons/style-left.svg"); width: 10px; height: 10px; }
QTabBar QToolButton::right-arrow { image: url("$icons/style-right.svg"); width: 10px; height: 10px; }
QTabBar::tab:focus { color: $text; background: $hover; border-bottom-color: $focus; }

QScrollBar:vertical { background: transparent; width: 10px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: 10px; margin: 0; }
QScrollBar::handle { background: $border_strong; border-radius: 3px; margin: 2px; }
QScrollBar::handle:vertical { min-height: 24px; }
QScrollBar::handle:horizontal { min-width: 24px; }
QScrollBar::handle:hover { background: $bar_other; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }
QAbstractScrollArea::corner { background: transparent; border: 0; }

QSlider { background: transparent; border: 1px solid transparent; border-radius: 5px; min-height: 20px; }
QSlider:focus { border-color: $focus; }
QSlider::groove:horizontal { background: $bar_free; border-radius: 2px; height: 4px; margin: 0 4px; }
QSlider::sub-page:horizontal { background: $accent; border-radius: 2px; margin: 0 4px; }
QSlider::sub-page:horizontal:disabled { background: $bar_free; }
QSlider::handle:horizontal { background: $text; border-radius: 6px; width: 12px; margin: -4px 0; }
QSlider::handle:horizontal:disabled { background: $disabled; }

QSplitter::handle { background: transparent; }
QFrame#toolbar { background: $panel; border: 0; border-bottom: 1px solid $border; }
QFrame#statusBar { background: $panel; border: 0; border-top: 1px solid $border; }
QFrame#banner { background: $card; border: 0; border-bottom: 1px solid $border; }
QProgressBar {
  color: $text; background: $bar_free; border: 0; border-radius: 2px; text-align: center; max-height: 6px;
}
QProgressBar::chunk { background: $accent; border-radius: 2px; }
""")


def stylesheet(theme: Theme) -> str:
    """The sheet in the colours of `theme`."""
    colours = {name: getattr(theme, name, "") for name in _SHEET.get_identifiers()}
    colours["veil"] = f"#96{theme.panel[1:]}"  # readings that are not of now show through
    folder = str(files("devexplorer.resources").joinpath("icons")).replace("\\", "/")
    tick = "style-tick" if theme.accent_text == "#FFFFFF" else "style-tick-dark"
    return _SHEET.substitute(colours, icons=folder, tick=tick)
