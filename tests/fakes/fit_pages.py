"""The Fit page for tests of the window, and what an engine sends it."""

from __future__ import annotations

import msgspec
from PySide6.QtWidgets import QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.planner.records import FitPlanned, FitReport, FitSpec, PlanFit
from devexplorer.core.records import Answer, JobEnded, JobStarted
from devexplorer.core.session.state import State
from devexplorer.gui.fit.page import FitPanel
from fakes.host import hosted


def panel_for(qtbot: QtBot, state: State, width: int = 1264, height: int = 274) -> FitPanel:
    """As large as the tab has it in a window of 1280 x 800."""

    def make(host: QWidget) -> FitPanel:
        made = FitPanel(state)
        made.setParent(host)
        made.views.published.in_background = lambda _name, work, then: then(work())
        return made

    panel = hosted(qtbot, make, width, height)
    host = panel.parentWidget()
    assert host is not None
    host.resize(2600, 1400)
    return panel


def type_into(qtbot: QtBot, field: QLineEdit, text: str) -> None:
    """In place of what is in the field."""
    field.clear()
    qtbot.keyClicks(field, text)


def begun(panel: FitPanel, state: State, *, request: int) -> None:
    """Some plan is under way."""
    _start(state, PlanFit(spec=FitSpec(source="mlp")), request)
    panel.refresh()


def planned(panel: FitPanel, state: State, found: FitReport, *, target: str = "", request: int = 7) -> None:
    """A plan from its beginning to its end."""
    _start(state, PlanFit(spec=found.spec, target=target), request)
    state.apply(FitPlanned(request=request, target=target, report=found))
    ended(panel, state, Answer(title="planned", words="all cards"), request=request)


def ended(panel: FitPanel, state: State, answer: Answer, *, request: int) -> None:
    """The plan that is under way is over, with this answer."""
    state.apply(msgspec.structs.replace(answer, request=request))
    state.apply(JobEnded(request=request, ok=not answer.failed, time_unix_s=2.0))
    panel.refresh()


def _start(state: State, command: PlanFit, request: int) -> None:
    state.apply(JobStarted(request=request, title="planning", time_unix_s=1.0, command=command))


def texts(panel: FitPanel, column: int) -> list[str]:
    """A column of the table of cards."""
    return [row.cells[column].text for row in panel.table.rows]
