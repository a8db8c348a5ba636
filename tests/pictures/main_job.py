"""Makes the README's moving picture: “Show me how” in the real window, with real clicks on what it points at.

    python tests/pictures/main_job.py docs/pictures/main-job.gif

Needs ImageMagick (`convert`), no display and no GPU. A few minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QPoint, QPointF, QRect, Qt, QTimer
from PySide6.QtGui import QColor, QCursor, QImage, QPainter, QPen, QPolygonF
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QPushButton, QWidget

from devexplorer.core.session.session import Session
from devexplorer.core.session.settings import Settings, SettingsFile
from devexplorer.gui.objects.panel import GUIDED
from devexplorer.gui.shell.app import App
from devexplorer.gui.shell.bars.menus import second_device

SIZE_PX = (1080, 680)
FRAME_MS = 200
READ_S, LOOK_S, LAST_S = 1.4, 3.6, 5.0
"""How long a sentence, a curve, and the end of it are shown."""
COLOURS = 128
LEFT = Qt.MouseButton.LeftButton
POINTER = ((0, 0), (0, 17), (4, 13), (7, 20), (10, 19), (7, 12), (12, 12))


class Film:
    """Keeps a picture of the window five times a second; alike ones are one, that is shown longer."""

    def __init__(self, window: QWidget, folder: Path) -> None:
        self._window, self._folder = window, folder
        self.pointer = QPoint(540, 420)
        self.frames: list[tuple[Path, int]] = []
        """Each with how long it is shown, in milliseconds."""
        self._last: QImage | None = None
        self._timer = QTimer()
        self._timer.timeout.connect(self.take)

    def start(self) -> None:
        self._timer.start(FRAME_MS)

    def stop(self) -> None:
        self._timer.stop()

    def take(self) -> None:
        picture = self._window.grab().toImage()
        painter = QPainter(picture)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        menu = QApplication.activePopupWidget()
        if menu is not None:
            painter.drawPixmap(self._window.mapFromGlobal(menu.pos()), menu.grab())
        painter.setPen(QPen(QColor("#000000"), 1))
        painter.setBrush(QColor("#FFFFFF"))
        painter.drawPolygon(QPolygonF([QPointF(self.pointer) + QPointF(*point) for point in POINTER]))
        painter.end()
        if picture == self._last:
            path, shown_ms = self.frames[-1]
            self.frames[-1] = path, shown_ms + FRAME_MS
            return
        self._last = picture
        path = self._folder / f"{len(self.frames):04}.png"
        picture.save(str(path))
        self.frames.append((path, FRAME_MS))

    def write(self, target: Path) -> None:
        """As a GIF that repeats; one palette for all, so that what does not change takes no room."""
        palette = self._folder / "palette.png"
        some = [str(path) for path, _ in self.frames[:: len(self.frames) // 8]]
        alike = ["-append", "+dither", "-colors", str(COLOURS), "-unique-colors"]
        subprocess.run(["convert", *some, *alike, str(palette)], check=True)
        parts = [word for path, shown_ms in self.frames for word in ("-delay", str(shown_ms // 10), str(path))]
        small = ["+dither", "-remap", str(palette), "-layers", "OptimizeFrame", "-layers", "OptimizeTransparency"]
        subprocess.run(["convert", "-loop", "0", *parts, *small, str(target)], check=True)


class Hand:
    """Clicks what the guide points at."""

    def __init__(self, app: App, film: Film) -> None:
        self._window, self._film = app.window, film

    def wait(self, until: Callable[[], object], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() > end:
                raise SystemExit(f"did not happen: {self._window.state.answer}")
            QApplication.processEvents()
            time.sleep(0.01)

    def look(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() > end, seconds + 60)

    def click(self, widget: QWidget, line: str = "") -> None:
        """Go there and click; then on the line of the menu that begins so."""
        self._go(widget, widget.rect())
        if isinstance(widget, QPushButton) and widget.menu() is not None:
            menu = widget.menu()
            QTimer.singleShot(FRAME_MS * 3, lambda: self._choose(menu, line))
        QTest.mouseClick(widget, LEFT)

    def _choose(self, menu: QMenu, line: str) -> None:
        action = next(one for one in menu.actions() if one.text().startswith(line))
        self._go(menu, menu.actionGeometry(action))
        self.look(FRAME_MS * 3 / 1000)
        QTest.mouseClick(menu, LEFT, pos=menu.actionGeometry(action).center())

    def _go(self, widget: QWidget, part: QRect) -> None:
        begin, end = self._film.pointer, self._window.mapFromGlobal(widget.mapToGlobal(part.center()))
        for share in (0.4, 0.8, 1.0):
            self._film.pointer = begin + (end - begin) * share
            self.look(FRAME_MS / 1000)

    def walk(self) -> None:
        """The path from its first step to its last."""
        window = self._window
        self.look(READ_S)
        self.click(window.objects.empty.buttons[GUIDED])
        guide = window.guide
        while (step := guide.step) is not None and guide.path is not None and step is not guide.path.steps[-1]:
            self.look(LOOK_S if step.done is None else READ_S)
            control = guide.callout.next_button if step.done is None else guide.control
            assert control is not None
            self.click(control, step.line.format(device=second_device(window.state)))
            self.wait(lambda was=step: guide.step is not was)
        self.look(LAST_S)
        guide.leave()
        self.look(1.0)


def main(target: Path) -> None:
    qt = QApplication(sys.argv[:1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = SettingsFile(folder)
        file.save(Settings(span_s=30.0))
        app = App(qt, file, None, folder / "history.sqlite3")
        app.window.resize(*SIZE_PX)
        QCursor.setPos(*SIZE_PX)  # on no button
        app.show()
        app.connect(Session())
        film = Film(app.window, folder)
        hand = Hand(app, film)
        hand.wait(lambda: app.state.engine is not None and app.state.usable_devices)
        hand.look(READ_S)
        film.start()
        hand.walk()
        film.stop()
        app.stop()
        film.write(target)
        seconds = sum(shown_ms for _, shown_ms in film.frames) / 1000
        print(f"{target}: {len(film.frames)} pictures, {seconds:.0f} s, {target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
