"""Beside the picture of a run: which run it shows, what came out in words, and what can be done with it. Main
thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QWidget,
)

from devexplorer.core.session import Run
from devexplorer.gui.benchmark.runs import state_cell, title
from devexplorer.gui.widgets import (
    EDGE_PX,
    Role,
    ScrollArea,
    ScrollColumn,
    hbox,
    holder,
    label,
    push_button,
    set_look,
    show_text,
    vbox,
)
from devexplorer.gui.widgets.form_fields import Choice

WIDTH_PX = 272


class Summary(ScrollColumn):
    """A narrow column: the choice, one strong line, words, one button. It scrolls where the tab is low."""

    changed = Signal()
    """Another run was chosen."""
    acted = Signal()
    """The button."""

    def __init__(self) -> None:
        super().__init__("", WIDTH_PX)
        self._runs: dict[int, Run] = {}
        self.choice = Choice("The run shown")
        self.choice.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.choice.setMinimumContentsLength(12)
        self.choice.currentIndexChanged.connect(self.changed)
        self.headline = label("", Role.STRONG, wrap=True)
        self.state = label("", words="error", wrap=True)
        self.facts = label("", words="dim", wrap=True)
        self.words = label("", words="soft", wrap=True)
        self.warning = label("", words="error", wrap=True)
        self.button = push_button(clicked=self.acted)
        column = vbox(
            self.choice,
            self.headline,
            self.warning,
            self.words,
            self.state,
            self.facts,
            (self.button, 0, Qt.AlignmentFlag.AlignLeft),
            None,
            spacing=6,
            margins=(EDGE_PX, 2, 8, 4),
        )
        self.set_content(column)
        self.setFixedWidth(WIDTH_PX)

    def offer(self, runs: list[Run]) -> Run:
        """Offer these runs (at least one), the newest first; returns the chosen one: a run that begins, after that the
        user's choice."""
        new = next((run.run for run in runs if run.run not in self._runs), self.choice.value)
        self._runs = {run.run: run for run in runs}
        self.choice.offer((run.run, title(run), "") for run in runs)
        self.choice.blockSignals(True)
        self.choice.choose(new)
        self.choice.blockSignals(False)
        return self._runs[self.choice.value]

    @property
    def run(self) -> Run | None:
        """The one that is chosen."""
        return self._runs.get(self.choice.value)

    def say(self, headline: str, words: str, run: Run, *facts: str, warning: str = "", action: str = "") -> None:
        """The result, the state of the run, and facts about it; a state with a sign has a line and a colour of its
        own."""
        state = state_cell(run)
        sign = state.text[:1]
        told = sign in ("✕", "▲")
        below = ", ".join(filter(None, facts if told else (state.text, *facts)))
        texts = (
            (self.headline, headline),
            (self.warning, warning),
            (self.words, words),
            (self.state, state.text if told else ""),
        )
        for target, text in (*texts, (self.facts, below), (self.button, action)):
            show_text(target, text)
        set_look(self.state, "warning" if sign == "▲" else "error")

    def explain(self, reasons: Iterable[str | None]) -> None:
        """Why something was not measured, for the tooltip of the facts: each reason once, with how often it was so."""
        counts = Counter(reason or "no reason is known" for reason in reasons)
        texts = [f"{count} not measured: {reason}" for reason, count in counts.most_common()]
        self.facts.setToolTip("\n".join(texts))


def beside(summary: Summary, picture: QWidget) -> QWidget:
    """The column at the left, and the picture, which scrolls where it has no room."""
    area = ScrollArea(picture, sideways=True)
    area.setMinimumSize(200, 56)
    return holder(hbox(summary, (area, 1)))
