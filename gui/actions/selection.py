"""What is selected in the tree, and why it is not what an action needs. Main thread; reads the state, no widgets."""

from __future__ import annotations

import operator

from devexplorer.core.base import object_name
from devexplorer.core.records import ObjectSnapshot, Row
from devexplorer.gui.actions.controller import Controller


class Selection:
    """`controller` knows which targets are selected."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._read: tuple[tuple[str, ...], list[ObjectSnapshot], list[tuple[str, Row]]] = ((), [], [])
        """The rows of the selection, kept with what they were read from: every action asks, and thousands can be
        selected."""

    def rows(self) -> list[tuple[str, Row]]:
        """The selected targets that exist, each with its row."""
        targets, objects = self._controller.selection(), list(self._controller.state.objects.values())
        if (
            targets is not self._read[0]
            or not all(map(operator.is_, objects, self._read[1]))
            or len(objects) != len(self._read[1])
        ):
            rows = [(target, row) for target in targets if (row := self._controller.row(target)) is not None]
            self._read = targets, objects, rows
        return self._read[2]

    def tensors(self) -> list[str]:
        """Selected tensors, parameters and buffers with values."""
        return [target for target, row in self.rows() if row.kind != "module" and row.initialised]

    def parameters(self) -> list[str]:
        """Selected parameters of models."""
        return [target for target, row in self.rows() if row.kind == "parameter"]

    def model(self) -> str | None:
        """The one model that everything selected belongs to."""
        names = {object_name(target) for target, _ in self.rows()}
        models = [name for name in names if self._controller.state.objects[name].kind == "model"]
        return models[0] if len(models) == 1 else None

    # --- why an action is disabled

    def why_no_values(self) -> str | None:
        """Reason when one tensor with values is needed."""
        return self._controller.why_no_selection() or (
            None if len(self.tensors()) == 1 else "Select one tensor, parameter or buffer with values."
        )

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
        return self.why_no_target() or (None if len(self.rows()) == 1 else "Select one thing only.")

    def why_no_model(self) -> str | None:
        """Reason when the selection belongs to no one model."""
        return self._controller.why_no_selection() or (
            None if self.model() is not None else "Select one model, or something in it."
        )

    def model_has(self, field: str) -> bool:
        """Whether a field of the selected model's snapshot is filled."""
        model = self.model()
        return model is not None and bool(getattr(self._controller.state.objects[model], field))

    def the_model(self) -> str:
        """The selected model, for an action that is disabled without one."""
        model = self.model()
        assert model is not None, "an action that needs a model is disabled without one"
        return model
