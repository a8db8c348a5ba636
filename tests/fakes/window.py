"""The whole window with the real engine in this process, its heartbeat driven by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QPushButton, QWidget

from devexplorer.core.devices.drm import Drm
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.records import Event
from devexplorer.core.session.session import Session
from devexplorer.core.session.settings import SettingsFile
from devexplorer.gui.shell.app import App
from fakes.engine import EngineHere
from fakes.nvml import FakeCard, FakeNvml

DEADLINE_S = 30.0


class Driver:
    """An `App` whose heartbeat is driven by the test."""

    def __init__(self, app: App, session: Session) -> None:
        self.app, self.state, self.window = app, app.state, app.window
        app.show()
        self.session = session
        self.heartbeat = app.connect(session)
        self.heartbeat.stop()
        self.engines: list[EngineHere] = []

    def until(self, happened: Callable[[], object], what: str = "it") -> None:
        """Beat until a condition holds."""
        end = time.monotonic() + DEADLINE_S
        while not happened():
            assert time.monotonic() < end, f"did not happen: {what}; the window says {self.state.answer}"
            QApplication.processEvents()
            self.heartbeat.tick()
            time.sleep(0.002)
        self.heartbeat.tick()
        self.window.refresh_texts()

    def ready(self) -> Self:
        self.until(lambda: self.state.engine is not None and self.state.usable_devices, "ready")
        return self

    def click(self, widget: QWidget) -> None:
        QTest.mouseClick(widget, Qt.MouseButton.LeftButton)

    def choose(self, button: QPushButton, wanted: str) -> None:
        """Open the button's menu with a click and click one of its items."""

        def pick() -> None:
            menu: QMenu = button.menu()
            action = next(a for a in menu.actions() if a.text().replace("\t", " ").split()[0] == wanted)
            QTest.mouseClick(menu, Qt.MouseButton.LeftButton, pos=menu.actionGeometry(action).center())

        QTest.mouseMove(button)  # Qt ignores a click where the pointer was when the menu opened
        QTimer.singleShot(0, pick)
        self.click(button)

    def build(self, recipe: str) -> None:
        self.choose(self.window.toolbar.buttons["build"], recipe)
        self.until(lambda: recipe in self.state.objects and not self.state.jobs, f"built {recipe}")

    def select(self, *targets: str) -> None:
        self.window.objects.select(*targets)
        self.heartbeat.tick()

    def key(self, key: Qt.Key, modifier: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier) -> None:
        self.window.activateWindow()  # the offscreen plugin leaves the focus on a closed menu
        self.until(self.window.isActiveWindow, "active")
        self.window.objects.tree.setFocus()
        QTest.keyClick(self.window.objects.tree, key, modifier)

    def where(self, name: str) -> set[str]:
        return set(self.state.objects[name].bytes_by_device)

    def on(self, name: str, device: str) -> None:
        self.until(lambda: self.where(name) == {device} and not self.state.jobs, f"{name} on {device}")

    def end(self) -> None:
        """Close the window, end the engine, and remove its virtual GPUs."""
        self.app.stop()
        machine = self.engines[-1].engine.machine
        if machine is not None:
            machine.reset()


D = TypeVar("D", bound=Driver)


def open_window(
    qapp: QApplication,
    folder: Path,
    virtual: str | None,
    kind: type[D],
    interval_s: float = 0.1,
    cards: Sequence[FakeCard] = (),
) -> D:
    """A new window, with its settings in `folder`; wait until it is `ready`. `interval_s`: between two readings."""
    engines: list[EngineHere] = []

    def engine(put: Callable[[Event], None], spec: str | None, visible: str | None) -> EngineHere:
        engines.append(EngineHere(put, spec, visible))
        return engines[-1]

    session = Session(
        virtual_spec=virtual,
        interval_s=interval_s,
        make_engine=engine,
        nvml=Nvml(FakeNvml(*cards)),
        drm=Drm(Path("/nowhere")),
    )
    driver = kind(App(qapp, SettingsFile(folder)), session)
    driver.engines = engines
    return driver
