"""Actions about the history of benchmark runs. Main thread only."""

from __future__ import annotations

from devexplorer.gui.actions import ActionSpec, WindowContext
from devexplorer.gui.history.tab import TAB


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the palette."""
    return [
        ActionSpec("report", "Report…", "The chosen benchmark runs, or all, as an HTML page with plots for others",
                   lambda: TAB.show(context).report()),
    ]  # fmt: skip
