"""What can be done in the placement laboratory with the selection: parameters, optimizer, splits, questions. Main
thread.

As the controller, of which it is the second half: it reads the state and the selection, sends commands, and says why
something cannot be done now.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from devexplorer.core.records.doctor import Check
from devexplorer.core.records.experiments import Ask
from devexplorer.core.records.laboratory import (
    ClearGradients,
    Describe,
    InsertHops,
    Join,
    MakeOptimizer,
    MoveOptimizer,
    SetRequiresGrad,
    SetTraining,
    Tie,
    TrainStep,
    Untie,
)
from devexplorer.core.records.messages import Command
from devexplorer.core.records.objects import ObjectSnapshot, Row
from devexplorer.gui.actions.controller import Controller

OPTIMIZERS = {"sgd": "SGD", "momentum": "SGD with momentum", "adam": "Adam", "adamw": "AdamW", "none": "No optimizer"}
"""Kinds of `MakeOptimizer` in words."""
QUESTIONS = {
    "type": "What is its type()?",
    "device": "Where is it, and what is where in it?",
    "numpy": "Can it become a NumPy array?",
    "cpu-numpy": "And through .cpu()?",
    "item": "What is its item()?",
    "tolist": "What is its tolist()?",
    "is-leaf": "Is it a leaf?",
}
"""Questions of `Ask` in words."""


class Laboratory:
    """`controller` sends and knows the selection."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.send: Callable[[Command], object] = controller.send
        self._read: tuple[tuple[str, ...], list[ObjectSnapshot], list[tuple[str, Row]]] = ((), [], [])
        """The rows of the selection with what they are of: every action asks, and thousands can be selected."""

    # --- the selection
    # -------------------------------------------------------------------------------------------------

    def rows(self) -> list[tuple[str, Row]]:
        """The selected targets that are there, each with its row."""
        chosen, there = self._controller.selection(), list(self._controller.state.objects.values())
        if (
            chosen is not self._read[0]
            or not all(map(operator.is_, there, self._read[1]))
            or len(there) != len(self._read[1])
        ):
            found = [(target, row) for target in chosen if (row := self._controller.row(target)) is not None]
            self._read = chosen, there, found
        return self._read[2]

    def tensors(self) -> list[str]:
        """Selected tensors, parameters and buffers with values."""
        return [target for target, row in self.rows() if row.kind != "module" and row.initialised]

    def parameters(self) -> list[str]:
        """Selected parameters of models."""
        return [target for target, row in self.rows() if row.kind == "parameter"]

    def model(self) -> str | None:
        """The one model that everything selected belongs to."""
        names = {target.partition(":")[0] for target, _ in self.rows()}
        models = [name for name in names if self._controller.state.objects[name].kind == "model"]
        return models[0] if len(models) == 1 else None

    # --- why something cannot be done now
    # ------------------------------------------------------------------------------

    def why_no_values(self) -> str | None:
        """Reason when one tensor with values is needed."""
        if (reason := self._controller.why_no_selection()) is not None:
            return reason
        return None if len(self.tensors()) == 1 else "Select one tensor, parameter or buffer with values."

    def why_no_target(self) -> str | None:
        """Reason when something that can be initialised or frozen is needed."""
        if (reason := self._controller.why_no_selection()) is not None:
            return reason
        kinds = {row.kind for _, row in self.rows()}
        return (
            None
            if kinds & {"module", "parameter", "tensor"}
            else "Select a model, a part of one, a parameter or a tensor."
        )

    def why_no_one_target(self) -> str | None:
        """The same, when it has to be one."""
        if (reason := self.why_no_target()) is not None:
            return reason
        return None if len(self.rows()) == 1 else "Select one thing only."

    def why_no_tie(self) -> str | None:
        """Reason when two parameters of one model are needed."""
        if (reason := self._controller.why_no_selection()) is not None:
            return reason
        two = self.parameters()
        same = len({target.partition(":")[0] for target in two}) == 1
        return None if len(two) == 2 and same else "Select two parameters of one model (hold Ctrl and click)."

    def why_no_untie(self) -> str | None:
        """Reason when no tied parameter is selected."""
        if (reason := self._controller.why_no_selection()) is not None:
            return reason
        tied = [target for target, row in self.rows() if row.tied_to is not None and row.kind == "parameter"]
        return None if len(tied) == 1 else "Select one parameter that is tied to another."

    def why_no_model(self) -> str | None:
        """Reason when the selection belongs to no one model."""
        if (reason := self._controller.why_no_selection()) is not None:
            return reason
        return None if self.model() is not None else "Select one model, or something in it."

    def why_no_check(self) -> str | None:
        """Reason why the doctor cannot check a model."""
        if (reason := self.why_no_model()) is not None:
            return reason
        jobs = self._controller.state.jobs.values()
        return "The doctor is at work." if any(isinstance(job.command, Check) for job in jobs) else None

    def why_no_step(self) -> str | None:
        """Reason why there can be no training step."""
        if (reason := self.why_no_model()) is not None:
            return reason
        return None if self._snapshot_has("optimizer") else "Give the model an optimizer first."

    def why_no_hops(self) -> str | None:
        """Reason why hops cannot be inserted."""
        if (reason := self.why_no_model()) is not None:
            return reason
        return "Its parts fetch what they are given already." if self._snapshot_has("hops") else None

    def why_no_join(self) -> str | None:
        """Reason why there is nothing to take away."""
        if (reason := self.why_no_model()) is not None:
            return reason
        hooked = self._snapshot_has("hops") or self._snapshot_has("dispatched")
        return None if hooked else "The model has no hops: moving it to a device joins its parts."

    def _snapshot_has(self, field: str) -> bool:
        model = self.model()
        return model is not None and bool(getattr(self._controller.state.objects[model], field))

    # --- what can be done
    # ----------------------------------------------------------------------------------------------

    def describe(self, target: str | None = None) -> None:
        """Look at the values of one tensor."""
        wanted = target or next(iter(self.tensors()), None)
        if wanted is not None:
            self.send(Describe(target=wanted))

    def set_requires_grad(self, on: bool) -> None:
        """Unfreeze or freeze what is selected."""
        self.send(SetRequiresGrad(targets=tuple(target for target, _ in self.rows()), on=on))

    def tie(self) -> None:
        """Tie the second selected parameter to the first."""
        first, second = self.parameters()
        self.send(Tie(first=first, second=second))

    def untie(self) -> None:
        """Give the selected name a parameter of its own."""
        target = next(target for target, row in self.rows() if row.tied_to is not None and row.kind == "parameter")
        self.send(Untie(target=target))

    def clear_gradients(self) -> None:
        """Clear the gradients of the selected model or tensor."""
        self.send(ClearGradients(target=self.rows()[0][0]))

    def set_training(self, on: bool) -> None:
        """Training or evaluation mode."""
        self.send(SetTraining(target=self._model(), on=on))

    def make_optimizer(self, kind: str) -> None:
        """Give the selected model an optimizer."""
        self.send(MakeOptimizer(target=self._model(), kind=kind))

    def train_step(self) -> None:
        """One training step of the selected model, on the selected tensor if there is one."""
        self.send(TrainStep(target=self._model(), input=self._controller.selected_input()))

    def move_optimizer(self) -> None:
        """Let the optimizer's state follow its parameters."""
        self.send(MoveOptimizer(target=self._model()))

    def insert_hops(self) -> None:
        """Let the parts of the model fetch what they are given."""
        self.send(InsertHops(target=self._model()))

    def join(self) -> None:
        """Everything to the device that holds most of it, without hops."""
        model = self._model()
        held = self._controller.state.objects[model].bytes_by_device
        self.send(Join(target=model, device=max(held, key=lambda device: held[device], default="cpu")))

    def ask(self, question: str) -> None:
        """Ask the selected tensor or model."""
        self.send(Ask(target=self.rows()[0][0], question=question))

    def _model(self) -> str:
        model = self.model()
        assert model is not None, "what needs a model is disabled without one"
        return model
