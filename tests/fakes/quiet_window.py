"""The real window without an engine: tests set its state, and commands that it would send are kept."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QApplication

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import Command, DeviceInfo, Event
from devexplorer.core.session.settings import SettingsFile
from devexplorer.core.session.state import Change
from devexplorer.gui.shell.app import App
from fakes.look_records import CPU, ENGINE


class QuietWindow:
    """Pass events to `tell`; there is no automatic heartbeat. `now` is the window's clock."""

    def __init__(
        self, qapp: QApplication, folder: Path, *infos: DeviceInfo, size: tuple[int, int] = (1440, 900)
    ) -> None:
        self.app = App(qapp, SettingsFile(folder))
        self.window, self.state = self.app.window, self.app.state
        self.sent: list[Command] = []
        self.app.controller._send = self._keep
        self.now = 1_700_000_000.0
        self.state.set_catalog(Catalog((CPU, *infos), ()))
        self.window.resize(*size)
        self.window.show()
        self.tell(ENGINE)

    def _keep(self, command: Command) -> int:
        self.sent.append(command)
        return len(self.sent)

    def tell(self, *events: Event) -> None:
        """Apply events and redraw everything."""
        for event in events:
            self.state.apply(event)
        self.window.refresh(~Change.NOTHING, self.now)
        self.window.refresh_texts()
        self.settle()

    def settle(self) -> None:
        """Let Qt lay out and paint."""
        for _ in range(3):
            QApplication.processEvents()

    def answered(self) -> None:
        """Deliver results of other threads, as a beat does."""
        assert self.app.background.join(10.0)
        self.app.background.deliver()
        self.settle()

    def resize(self, width: int, height: int) -> None:
        """Give the window a size."""
        self.window.resize(width, height)
        self.settle()

    def close(self) -> None:
        """End it."""
        self.app.stop()
        self.window.hide()
