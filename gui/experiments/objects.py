"""Experiments with what is selected: a question to it, and its replicas on several devices. Main thread."""

from __future__ import annotations

from PySide6.QtWidgets import QSizePolicy

from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.findings import Findings
from devexplorer.core.records.experiments import Ask, Replicate
from devexplorer.core.records.objects import Row
from devexplorer.core.session.state import State
from devexplorer.gui.actions.dragging import row_of
from devexplorer.gui.experiments.actions import QUESTIONS
from devexplorer.gui.objects.command_page import FactsPage
from devexplorer.gui.widgets.device_choice import AlikeDevices
from devexplorer.gui.widgets.form_fields import Choice
from devexplorer.gui.widgets.panel import ElidedLabel
from devexplorer.gui.widgets.theme import Role, Theme

OF_MODULES = ("type", "device")
"""Questions that a module can be asked too."""
TARGET_PX = 220
"""The most that the name of what is selected takes."""
SAMPLE = "a sample"


class _SelectionPage(FactsPage):
    """A page about the one thing that is selected."""

    def __init__(self, state: State, theme: Theme) -> None:
        super().__init__(state, theme)
        self.target = ElidedLabel(Role.STRONG)
        self.target.setSizePolicy(
            QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed
        )  # its width is set, and the row has to know of it
        self.add_field("", self.target)

    def refresh(self) -> None:
        """See `ExperimentPage`."""
        count = len(self._targets)
        words = self._targets[0] if count == 1 else f"{count} selected" if count else "nothing selected"
        self.target.setFixedWidth(min(self.target.fontMetrics().horizontalAdvance(words) + 4, TARGET_PX))
        self.target.set_full_text(words)
        super().refresh()

    @property
    def selected(self) -> tuple[str, Row] | None:
        """The one selected target that is there, and its row."""
        row = row_of(self._state, self._targets[0]) if len(self._targets) == 1 else None
        return None if row is None else (self._targets[0], row)


class AskPage(_SelectionPage):
    """One of Python's questions."""

    kind, title, action = Ask, "Ask", "Ask"
    meaning = "What Python answers about a tensor or a model, and why"
    nothing = (
        "Select a tensor, a parameter or a model, and ask it what Python would: type(), numpy(), item(). Errors are"
        " explained."
    )

    def __init__(self, state: State, theme: Theme) -> None:
        super().__init__(state, theme)
        self.question = Choice("Question", [(key, words, "") for key, words in QUESTIONS.items()])
        self.add_field("", self.question)
        self.refresh()

    def command(self) -> Ask:
        """See `ExperimentPage`."""
        selected = self.selected
        if selected is None:
            raise BadInput("select one tensor, parameter, buffer or model")
        target, row = selected
        question = str(self.question.value)
        if row.kind not in ("module", "parameter", "buffer", "tensor") or not row.registered:
            raise BadInput("select a registered parameter or buffer, a tensor or a model")
        if row.kind == "module" and question not in OF_MODULES:
            raise BadInput("this is a question for a tensor; select one of the model's parameters")
        return Ask(target=target, question=question)


class ReplicatePage(_SelectionPage):
    """DataParallel's picture."""

    kind, title, action = Replicate, "Replicate", "Replicate"
    meaning = "A copy of a model on each device, the batch split over them, the outputs gathered"
    nothing = (
        "Select a model and choose two devices or more: each gets a copy, the batch is split over them and the outputs"
        " are gathered, as DataParallel does."
    )

    def __init__(self, state: State, theme: Theme) -> None:
        super().__init__(state, theme)
        self.devices = AlikeDevices(state)
        self.input = Choice("Input", [(None, SAMPLE, "A sample input that fits the model")])
        self.add_field("on", self.devices)
        self.add_field("batch", self.input)
        self.refresh()

    @property
    def lacks_devices(self) -> bool:
        """See `ExperimentPage`."""
        return len(self._state.usable_devices) < 2

    def refresh(self) -> None:
        """See `ExperimentPage`."""
        self.devices.refresh()
        tensors = [name for name, snapshot in self._state.objects.items() if snapshot.kind == "tensor"]
        self.input.offer(
            [(None, SAMPLE, "A sample input that fits the model"), *((name, name, "") for name in tensors)]
        )
        super().refresh()

    def command(self) -> Replicate:
        """See `ExperimentPage`."""
        found = Findings()
        selected = self.selected
        if selected is None or selected[1].kind != "module":
            found.add("select one model, or one part of a model")
        if self.lacks_devices:
            found.add("there is only one device here; add virtual GPUs to try it")
        elif len(self.devices.chosen) < 2:
            found.add("choose two devices at least")
        found.demand_none()
        assert selected is not None
        return Replicate(target=selected[0], devices=self.devices.chosen, input=self.input.value)
