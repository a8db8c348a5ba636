"""The action that checks a model. Main thread only."""

from __future__ import annotations

from devexplorer.core.records import Check
from devexplorer.core.session import Change
from devexplorer.gui.actions import ActionSpec, WindowContext
from devexplorer.gui.doctor.tab import TAB


def actions(context: WindowContext) -> list[ActionSpec]:
    """The one action."""

    def why_no_check() -> str | None:
        if (reason := context.selection.why_no_model()) is not None:
            return reason
        return "The doctor is at work." if context.state.running(Check) is not None else None

    return [
        ActionSpec("check", "Check", "Which line of the selected model would put a tensor on the wrong device",
                   lambda: TAB.show(context).form.check(), why_no_check, "C", "check",
                   asks=Change.OBJECTS | Change.JOBS | Change.ENGINE),
    ]  # fmt: skip
