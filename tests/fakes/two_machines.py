"""A window with this machine and one behind a link, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton

from devexplorer.core.devices.drm import Drm
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.machines.ssh.records import ConnectionFailure, Report
from devexplorer.core.machines.window.machines import FarMachine
from devexplorer.core.records import Event
from devexplorer.core.session.session import Session
from devexplorer.core.session.settings import SettingsFile
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.shell.app import App
from fakes.far import RouteHere
from fakes.hosts import READY, HostHere, SilentEngine
from fakes.nvml import FakeNvml

DEADLINE_S = 20.0


class FarWayFake:
    """The route as the connecting dialog sees it."""

    failure: ConnectionFailure | None = None

    def __init__(self, route: RouteHere, host: str, python: str) -> None:
        self.host, self.python = host, python
        self.open, self.cancel = route.open, route.cancel

    def reports(self) -> list[Report]:
        return []

    def answer(self, number: int, text: str | None) -> None:
        raise AssertionError("nothing was asked")


class TwoMachines:
    """A window with this machine and one behind a link, beaten by hand."""

    def __init__(self, qapp: QApplication, folder: Path) -> None:
        self.host = HostHere(folder)
        self.host.say(READY)
        self.route = RouteHere(self.host)
        self.app = App(qapp, SettingsFile(folder), data_folder=folder)
        self.window, self.state = self.app.window, self.app.state
        self.app.show()
        self.app.shown.go_live = self.go_live
        self.engine: SilentEngine | None = None

    def go_live(self) -> None:
        def engine(put: Callable[[Event], None], *_: object) -> SilentEngine:
            self.engine = SilentEngine(put)
            return self.engine

        session = Session(make_engine=engine, nvml=Nvml(FakeNvml()), drm=Drm(Path("/nowhere")), interval_s=0.02)
        self.app.connect(session).stop()
        session.put(READY)

    def add(self) -> FarMachine:
        machine = room_of(self.window.context).add("forge", self.route)
        assert self.app.heartbeat is not None
        self.app.heartbeat.stop()
        self.until(lambda: machine.link.live and machine.session.link.holder is None)
        return machine

    def until(self, happened: Callable[[], object]) -> None:
        assert self.app.heartbeat is not None
        end = time.monotonic() + DEADLINE_S
        while not happened():
            assert time.monotonic() < end, "it did not happen"
            self.host.server.tick()
            QApplication.processEvents()
            self.app.heartbeat.tick()
            self.host.server._bell.wait(0.002)
            self.host.server._bell.clear()
        self.app.heartbeat.tick()
        self.window.refresh_texts()

    def click(self, button: QPushButton) -> None:
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)

    def end(self) -> None:
        self.app.stop()
        self.host.close()
        self.route.close()
