from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QIcon, QPixmap
from PySide6.QtWidgets import QApplication, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.gui.plots.curves import Floats
from devexplorer.gui.widgets import icons
from devexplorer.gui.widgets import theme as themes
from devexplorer.gui.widgets.theme import (
    CPU,
    DARK,
    LIGHT,
    Role,
    Theme,
    device_colour,
    device_dash,
    device_pen,
    set_theme,
    stylesheet,
)

ALL = pytest.mark.parametrize("theme", themes.THEMES.values(), ids=lambda theme: theme.name)


class StyleChanges(QObject):
    """The events of a widget that cost a new look."""

    def __init__(self, widget: QWidget) -> None:
        super().__init__()
        self.seen: list[QEvent.Type] = []
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.StyleChange, QEvent.Type.PaletteChange, QEvent.Type.FontChange):
            self.seen.append(event.type())
        return False


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear_light(colour))


DEFICIENCIES = {
    "everyone": np.eye(3),
    "protanopes": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopes": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopes": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
"""What they see of linear sRGB: Machado, Oliveira and Fernandes 2009, severity 1."""
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
)
D65 = np.array([0.95047, 1.0, 1.08883])


def linear_light(colour: str) -> Floats:
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(linear: Floats) -> Floats:
    """CIE Lab, D65."""
    shares = TO_XYZ @ np.clip(linear, 0, 1) / D65
    x, y, z = np.where(shares > 0.008856, np.cbrt(shares), 7.787 * shares + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_of_black_on_white_is_21():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)


@ALL
def test_every_text_is_readable_on_its_backgrounds(theme: Theme):
    set_theme(theme)
    least = 7.0 if theme.name == "high-contrast" else 4.5
    weak = {what: round(contrast(*pair), 2) for what, pair in text_pairs(theme).items() if contrast(*pair) < least}
    assert weak == {}


@ALL
def test_the_frame_of_the_focus_can_be_seen_on_everything(theme: Theme):
    surfaces = ("window", "panel", "card", "button", "button_hover", "code", "selection", "hover", "border")
    weak = {where: ratio for where in surfaces if (ratio := contrast(theme.focus, getattr(theme, where))) < 3}
    assert weak == {}


@ALL
def test_devices_have_different_colours_and_the_cpu_its_own(theme: Theme):
    set_theme(theme)
    colours = [device_colour(index) for index in range(-1, 8)]
    assert colours[0] == theme.cpu
    assert len(set(colours)) == 9


@ALL
@pytest.mark.parametrize("seen_by", DEFICIENCIES)
def test_colour_blind_readers_see_nine_colours(theme: Theme, seen_by: str):
    """No two are nearer than 10 in CIE Lab; 2 can just be told apart side by side."""
    seen = [lab(DEFICIENCIES[seen_by] @ linear_light(colour)) for colour in (theme.cpu, *theme.devices)]
    assert min(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(seen, 2)) > 10


def test_the_dark_colours_are_those_that_were_asked_for():
    wanted = ["#8A8F98", "#4FA3E0", "#F2B33D", "#2FC597", "#E39CC4", "#8CCBF2", "#F07F3C", "#F0E442"]
    assert [device_colour(index) for index in range(-1, 7)] == wanted


@ALL
def test_no_two_devices_look_alike_by_colour_and_dash_pattern(theme: Theme):
    set_theme(theme)
    looks = [(device_colour(index), tuple(device_dash(index))) for index in range(-1, 16)]
    if theme.every_line_has_its_dashes:
        assert len({dash for _, dash in looks[:9]}) == 9
    else:
        assert all(dash == () for _, dash in looks[:9])
        assert all(dash != () for _, dash in looks[9:])
    assert len(set(looks)) == 17
    simulated = [(device_colour(index), *device_pen(index, simulated=True).dashPattern()) for index in range(16)]
    assert len(set(simulated)) == 16
    assert len({look[1:] for look in simulated[:8]}) == 8
    assert all(len(look) > 1 for look in simulated)


def test_a_simulated_device_is_always_dashed():
    assert device_pen(0).dashPattern() == []
    assert device_pen(0, simulated=True).dashPattern() != []


@ALL
def test_the_theme_is_applied_to_palette_font_and_stylesheet(qapp: QApplication, theme: Theme):
    themes.apply(qapp, theme)
    assert qapp.palette().window().color() == QColor(theme.window)
    assert qapp.font().pixelSize() == 13
    assert theme.panel in qapp.styleSheet()
    assert themes.current_theme() is theme


def test_the_theme_that_is_there_already_styles_nothing_again(qtbot: QtBot, qapp: QApplication):
    button = QPushButton("Move")
    qtbot.addWidget(button)
    themes.apply(qapp, DARK)
    button.show()
    qapp.processEvents()  # Qt tells of a new font later
    styled = StyleChanges(button)
    themes.apply(qapp, DARK)
    assert styled.seen == []
    themes.apply(qapp, LIGHT)
    assert QEvent.Type.StyleChange in styled.seen


def test_fonts_have_the_three_sizes_and_digits_of_one_width(qapp: QApplication):
    assert [themes.font(role).pixelSize() for role in (Role.LABEL, Role.TEXT, Role.STRONG, Role.NUMBER)] == [
        11,
        13,
        13,
        18,
    ]
    metrics = QFontMetricsF(themes.font(Role.TEXT))
    assert len({metrics.horizontalAdvance(digit) for digit in "0123456789"}) == 1


@ALL
def test_the_stylesheet_has_no_colour_but_the_themes(theme: Theme):
    sheet = stylesheet(theme)
    assert "$" not in sheet
    assert "font" not in sheet


def text_pairs(theme: Theme) -> dict[str, tuple[str, str]]:
    """Every pair of text colour and background that the window uses, by what it is."""
    surfaces = ("window", "panel", "card", "button", "button_hover", "code", "selection", "hover")
    texts = ("text", "soft", "dim", "warning", "error")
    pairs = {
        f"{text} on {where}": (getattr(theme, text), getattr(theme, where)) for text in texts for where in surfaces
    }
    pairs["accent_text on accent"] = (theme.accent_text, theme.accent)
    pairs["text on border"] = (theme.text, theme.border)  # a button that is pressed or checked
    # Device names appear on panels, cards and code; a chip in a selected row brings the panel's colour along.
    for index in range(CPU, len(theme.devices)):
        for where in ("window", "panel", "card", "code"):
            pairs[f"device {index} on {where}"] = (device_colour(index), getattr(theme, where))
    return pairs


ICONS = sorted(entry.name.removesuffix(".svg") for entry in icons._folder().iterdir() if entry.name.endswith(".svg"))


def test_each_icon_is_drawn_in_the_colour_asked_for(qapp: QApplication):
    for name, ratio in itertools.product(ICONS, (1.0, 2.0)):
        picture = icons.pixmap(name, "#FF0000", 16, ratio)
        assert picture.width() == 16 * ratio
        image = picture.toImage()
        places = itertools.product(range(image.width()), range(image.height()))
        inked = [colour for x, y in places if (colour := image.pixelColor(x, y)).alpha() > 200]
        assert inked, name
        if name != "app" and not name.startswith("style-"):
            assert {(colour.red() > 200, colour.green(), colour.blue()) for colour in inked} == {(True, 0, 0)}


def test_the_icons_that_the_window_needs_are_there():
    needed = (
        "build tensor open move forward backward benchmark stop undo add remove filter theme copy "
        "warning error cpu gpu virtual-gpu pause play app"
    )
    assert set(needed.split()) <= set(ICONS)


def test_a_disabled_icon_has_its_own_colour_and_both_sharpnesses(qapp: QApplication):
    icon = icons.icon("stop", "#FF0000", "#00FF00")
    enabled, disabled = (
        icon.pixmap(16, mode).toImage().pixelColor(8, 8) for mode in (QIcon.Mode.Normal, QIcon.Mode.Disabled)
    )
    assert enabled == QColor("#FF0000")
    assert disabled == QColor("#00FF00")
    assert {size.width() for size in icon.availableSizes()} >= {16}


def test_the_application_icon_is_not_empty(qapp: QApplication):
    picture: QPixmap = icons.app_icon().pixmap(64)
    assert picture.toImage().pixelColor(20, 32) == QColor(DARK.devices[0])


def test_an_unknown_icon_is_an_error():
    with pytest.raises(FileNotFoundError):
        icons.svg("no-such-icon", "#FF0000")


@pytest.mark.parametrize("preference", [*Qt.ContrastPreference, None], ids=str)
def test_the_first_start_follows_the_contrast_that_the_desktop_asks_for(
    monkeypatch: pytest.MonkeyPatch, preference: Qt.ContrastPreference | None
) -> None:
    hints = SimpleNamespace()
    if preference is not None:  # Qt before 6.10 does not know
        hints.accessibility = lambda: SimpleNamespace(contrastPreference=lambda: preference)
    monkeypatch.setattr(themes.QGuiApplication, "styleHints", lambda: hints)
    wanted = "high-contrast" if preference == Qt.ContrastPreference.HighContrast else "dark"
    assert themes.preferred().name == wanted
