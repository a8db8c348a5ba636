"""Questions to the selected tensor or model. Main thread only."""

from __future__ import annotations

from functools import partial

from devexplorer.core.experiments.records import Ask
from devexplorer.core.records import Offer
from devexplorer.core.session import State
from devexplorer.gui.actions import ASK, ActionSpec, WindowContext, row_of

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


def offers(state: State, *targets: str) -> tuple[Offer, ...]:
    """One tensor may become an array."""
    row = row_of(state, targets[0])
    if len(targets) != 1 or row is None or row.kind not in ("tensor", "parameter", "buffer"):
        return ()
    return (Offer("To NumPy", Ask(target=targets[0], question="numpy")),)


def _ask(context: WindowContext, question: str) -> None:
    context.controller.send(Ask(target=context.selection.rows()[0][0], question=question))
