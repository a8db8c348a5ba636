"""The application's own line icons, drawn in whatever colour the theme asks for. Main thread only."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QIcon, QPainter, QPixmap, QPixmapCache
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QLabel

from devexplorer.gui.widgets.theme import Tone, colour_of, theme_changed

SIZE = 16
"""Side of a line icon in device-independent pixels."""


def svg(name: str, colour: str) -> bytes:
    """The drawing with `currentColor` replaced by `colour` (`#RRGGBB`). FileNotFoundError: no such icon."""
    return _drawing(name).replace("currentColor", colour).encode()


@cache
def _folder() -> Traversable:
    """Looked for once: finding it takes longer than reading a drawing."""
    return files("devexplorer.resources").joinpath("icons")


@cache
def _drawing(name: str) -> str:
    """Each is read once: an icon has four pixmaps, and the window's first picture waits for them."""
    return _folder().joinpath(f"{name}.svg").read_text(encoding="utf-8")


def pixmap(name: str, colour: str, size: int = SIZE, ratio: float = 1.0) -> QPixmap:
    """The icon as `size` × `size` device-independent pixels, sharp on a screen with `ratio` pixels for each."""
    key = f"devexplorer {name} {colour} {size} {ratio}"
    kept = QPixmap()
    if QPixmapCache.find(key, kept):
        return kept
    result = QPixmap(round(size * ratio), round(size * ratio))
    result.fill(Qt.GlobalColor.transparent)
    painter = QPainter(result)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    QSvgRenderer(QByteArray(svg(name, colour))).render(painter, QRectF(result.rect()))
    painter.end()
    result.setDevicePixelRatio(ratio)
    QPixmapCache.insert(
        key, result
    )  # signs are painted with every reading, and reading the drawing takes longer than that
    return result


def icon(name: str, colour: str, disabled: str | None = None, size: int = SIZE) -> QIcon:
    """A QIcon with drawings for 100 % and 200 %; `disabled` is the colour of a control that cannot be used now."""
    result = QIcon()
    for ratio in (1.0, 2.0):
        result.addPixmap(pixmap(name, colour, size, ratio))
        if disabled is not None:
            result.addPixmap(pixmap(name, disabled, size, ratio), QIcon.Mode.Disabled)
    return result


class Sign(QLabel):
    """An icon beside a text, in the colours of the current theme."""

    def __init__(self, name: str = "", tone: Tone = "dim", size: int = SIZE) -> None:
        super().__init__(textFormat=Qt.TextFormat.PlainText)
        self._icon: tuple[str, Tone] = name, tone
        self._size = size
        theme_changed.connect(self._draw)
        self._draw()

    def show_icon(self, name: str, tone: Tone) -> None:
        """Show this one; none if there is no `name`."""
        self._icon = name, tone
        self._draw()

    def _draw(self) -> None:
        name, tone = self._icon
        self.setPixmap(pixmap(name, colour_of(tone), self._size, self.devicePixelRatioF()) if name else QPixmap())
        side = self._size if name else 0
        self.setFixedSize(side, side)  # where there is little room, texts give way


def app_icon() -> QIcon:
    """The application's icon, in the sizes that desktops ask for."""
    result = QIcon()
    for size in (16, 24, 32, 48, 64, 128, 256):
        result.addPixmap(pixmap("app", "#000000", size))
    return result
