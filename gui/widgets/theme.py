"""Colours, fonts and the style of the window, dark and light. Main thread only.

Colour means device: `device_colour` gives the one colour that a device has in its card, its chips and its curves.
Every text has a contrast of at least 4.5:1 with what it is on (WCAG 2.2, 1.4.3); a test computes it.

Who paints asks `current_theme` for colours: Qt repaints every widget after `apply`. Who keeps what it has made from
colours (curves, pixmaps, formatted text) makes it again at `theme_changed`, also while it is hidden. A row of a
table keeps a `Colour` instead, which means something in every theme.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache
from typing import Literal

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QFontInfo, QGuiApplication, QPalette, QPen
from PySide6.QtWidgets import QApplication

from devexplorer.gui.widgets.accessibility import screen_reader
from devexplorer.gui.widgets.style import stylesheet

LABEL_PX, TEXT_PX, NUMBER_PX, CODE_PX = 11, 13, 18, 12
"""Font sizes in pixels: labels and ticks, text, the one number of a card; code, whose fixed font looks larger."""

CPU = -1
"""The palette index of the CPU."""

DASHES: tuple[list[float], ...] = ([], [6.0, 3.0], [2.0, 2.0], [8.0, 3.0, 2.0, 3.0])
"""Dash patterns in pen widths: the CPU and seven accelerators are solid, the next seven dashed, and so on."""
DISTINCT_DASHES: tuple[list[float], ...] = (
    [], [9.0, 4.0], [2.0, 5.0], [10.0, 3.0, 2.0, 3.0], [16.0, 3.0], [10.0, 3.0, 2.0, 3.0, 2.0, 3.0], [6.0, 8.0],
)  # fmt: skip
"""Of accelerators 0 to 6 where every line has its own; from the ninth device on no colour has the same one again."""
CPU_DASHES = [2.0, 2.0]


@dataclass(frozen=True, slots=True)
class Theme:
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
    """Accelerators 0 to 6; from the ninth device on (the CPU is the first) they come again with a dash pattern."""
    every_line_has_its_dashes: bool = False
    """Also the first devices differ in their dash patterns, not in colour alone."""

    @property
    def added(self) -> str:
        """Lines that a patch adds: the palette's green, which is readable on code."""
        return self.devices[2]


# Okabe's and Ito's colours for colour-blind readers: brightened on dark; on light darkened until they reach 4.5:1 as
# text on every background, and moved apart again for colour-blind readers. A test measures both.
DARK = Theme(
    name="dark",
    is_dark=True,
    window="#16181C",
    panel="#1C1F24",
    card="#20242A",
    field="#16181C",
    button="#23272E",
    button_hover="#2A2F37",
    code="#14161A",
    border="#2A2E35",
    border_strong="#353A43",
    text="#E4E7EB",
    soft="#C6CBD3",
    dim="#9AA0AA",
    disabled="#646A74",
    accent="#2B6CB0",
    accent_text="#FFFFFF",
    focus="#6FA8E6",
    selection="#24364B",
    hover="#22262D",
    bar_free="#2A2E35",
    bar_context="#5A616C",
    bar_other="#7A818C",
    simulated="#6B727D",
    warning="#F0B429",
    error="#FF7B72",
    cpu="#8A8F98",
    devices=("#4FA3E0", "#F2B33D", "#2FC597", "#E39CC4", "#8CCBF2", "#F07F3C", "#F0E442"),
)
LIGHT = Theme(
    name="light",
    is_dark=False,
    window="#F4F5F7",
    panel="#FFFFFF",
    card="#FAFBFC",
    field="#FFFFFF",
    button="#FFFFFF",
    button_hover="#EFF1F4",
    code="#F4F5F7",
    border="#DFE3E8",
    border_strong="#CBD1D9",
    text="#1D2126",
    soft="#3A424C",
    dim="#5C6570",
    disabled="#98A0AA",
    accent="#2B6CB0",
    accent_text="#FFFFFF",
    focus="#2B6CB0",
    selection="#DCEAF8",
    hover="#F3F6F9",
    bar_free="#DFE3E8",
    bar_context="#5A616C",
    bar_other="#8D949F",
    simulated="#6B727D",
    warning="#8F5600",
    error="#B42318",
    cpu="#69707A",
    devices=("#0072B2", "#916700", "#007F5C", "#A1308A", "#003281", "#82370E", "#776935"),
)
CONTRAST = Theme(
    name="high-contrast",
    is_dark=True,
    window="#000000",
    panel="#000000",
    card="#0A0A0A",
    field="#000000",
    button="#101010",
    button_hover="#2A2A2A",
    code="#0A0A0A",
    border="#50565F",
    border_strong="#A8AEB8",
    text="#FFFFFF",
    soft="#F2F4F6",
    dim="#D5DAE1",
    disabled="#8A8F98",
    accent="#8CC8FF",
    accent_text="#000000",
    focus="#FFE45C",
    selection="#0B2F57",
    hover="#1C1C1C",
    bar_free="#33373D",
    bar_context="#8A919C",
    bar_other="#B3B9C3",
    simulated="#B3B9C3",
    warning="#FFC83D",
    error="#FFA8A1",
    cpu="#C3C8D0",
    devices=("#66BBFF", "#FFBE4A", "#3CE0AE", "#E58FCB", "#B5E0FF", "#FF9A5E", "#FFF36B"),
    every_line_has_its_dashes=True,
)
"""Every text has 7:1."""
THEMES = {theme.name: theme for theme in (DARK, LIGHT, CONTRAST)}
"""All that there are, in the order in which the user goes through them."""

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
    return "error" if severity == "error" else "warning" if severity == "warning" else "dim"


def device_dash(index: int) -> list[float]:
    """Dash pattern in pen widths that distinguishes the ninth device from the first, or every device from all others;
    empty for a solid line."""
    if current_theme().every_line_has_its_dashes:
        count = len(DISTINCT_DASHES)
        return list(CPU_DASHES if index < 0 else DISTINCT_DASHES[(index + index // count) % count])
    return list(DASHES[0 if index < 0 else (index // len(current_theme().devices)) % len(DASHES)])


def device_pen(index: int, *, simulated: bool = False, width: float = 1.0) -> QPen:
    """The pen for outlines and curves of a device; a simulated one is always dashed."""
    pen = QPen(QColor(device_colour(index)), width)
    pattern = device_dash(index) or ([4.0, 3.0] if simulated else [])
    if pattern:
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


def palette(theme: Theme) -> QPalette:
    """Qt's palette in the theme's colours."""
    result = QPalette()
    role = QPalette.ColorRole
    for which, colour in (
        (role.Window, theme.window),
        (role.WindowText, theme.text),
        (role.Base, theme.panel),
        (role.AlternateBase, theme.card),
        (role.Text, theme.text),
        (role.PlaceholderText, theme.dim),
        (role.Button, theme.button),
        (role.ButtonText, theme.text),
        (role.BrightText, theme.accent_text),
        (role.ToolTipBase, theme.card),
        (role.ToolTipText, theme.text),
        (role.Highlight, theme.selection),
        (role.HighlightedText, theme.text),
        (role.Accent, theme.accent),
        (role.Link, theme.text),
        (role.LinkVisited, theme.text),
        (role.Light, theme.border_strong),
        (role.Midlight, theme.border),
        (role.Mid, theme.border),
        (role.Dark, theme.border),
        (role.Shadow, theme.window),
    ):
        result.setColor(which, QColor(colour))
    for which in (role.WindowText, role.Text, role.ButtonText):
        result.setColor(QPalette.ColorGroup.Disabled, which, QColor(theme.disabled))
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
