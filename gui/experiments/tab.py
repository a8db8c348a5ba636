"""The tab Experiments: questions and short measurements; and the actions that ask. Main thread only."""

from __future__ import annotations

from functools import partial

from devexplorer.core.experiments.records import Ask
from devexplorer.core.session import Change
from devexplorer.gui.actions import ASK, ActionSpec, TabSpec, WindowContext, follow_selection, lazy_page

TAB = TabSpec(
    "experiments", lazy_page("devexplorer.gui.experiments.page:ExperimentsPanel", follow_selection), "measure",
    Change.LABORATORY | Change.OBJECTS | Change.ANSWER | Change.DEVICES | Change.ENGINE | Change.JOBS,
    action="Experiments", tooltip="Replicate a model, time without synchronising, find where the GPU overtakes",
    order=80, also_in=("learn",),
)  # fmt: skip


QUESTIONS = {
    "type": "What is its type()?",
    "device": "Where is it, and what is where in it?",
    "numpy": "Can it become a NumPy array?",
    "cpu-numpy": "And through .cpu()?",
    "item": "What is its item()?",
    "tolist": "What is its tolist()?",
    "is-leaf": "Is it a leaf?",
}
"""Titles of the questions of `Ask`."""


def actions(context: WindowContext) -> list[ActionSpec]:
    """One action for each question."""
    return [
        ActionSpec(f"ask_{question}", title, "Ask in Python; the answer is explained", partial(_ask, context, question),
                   context.selection.why_no_one_target, menu=ASK)
        for question, title in QUESTIONS.items()
    ]  # fmt: skip


def _ask(context: WindowContext, question: str) -> None:
    context.controller.send(Ask(target=context.selection.rows()[0][0], question=question))
