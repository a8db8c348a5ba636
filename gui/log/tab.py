"""The tab Log. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session.state import Change
from devexplorer.gui.actions import TabSpec, WindowContext

if TYPE_CHECKING:
    from devexplorer.gui.log.page import LogPanel


def _make(context: WindowContext) -> LogPanel:
    from devexplorer.gui.log.page import LogPanel

    return LogPanel(context.state, context.theme)


TAB = TabSpec("log", _make, Change.LOG)
