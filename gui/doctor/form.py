"""What the doctor is asked: which model, on which device, with which inputs; and how it goes. Main thread."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QCheckBox, QWidget

from devexplorer.core.base import object_name
from devexplorer.core.records import AddVirtual, Cancel, Check
from devexplorer.core.session import Job, State
from devexplorer.gui.actions import TWO_T4
from devexplorer.gui.forms.device_choice import DeviceField
from devexplorer.gui.widgets import (
    EDGE_PX,
    ElidedLabel,
    Role,
    can_add_virtual,
    grid,
    hbox,
    label,
    line_edit,
    push_button,
    show_text,
    vbox,
    why_not_live,
)

WIDTH_PX = 248
BUTTON_PX = 26
NO_MODEL = "Select a model, or something in one."
AT_WORK = "The doctor is at work."
ONLY_CPU = "On the CPU alone nothing can be on the wrong device: virtual GPUs show what a move would break."
ABOUT = "Rebuilds the model in a separate process, moves it and observes a forward pass. Nothing here changes."


class DoctorForm(QWidget):
    """`set_target` says which model; `refresh` follows devices and the job."""

    command_requested = Signal(object)
    """A `Check`, its `Cancel`, or more virtual GPUs."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self.target: str | None = None
        """The model that would be checked."""
        self.model = ElidedLabel(Role.STRONG)
        self.device = DeviceField(state)
        self.inputs = line_edit(
            placeholder="guessed; or 8x3x32x32",
            name="Shapes of the inputs",
            tip="One shape for each input, commas between them. Empty: a guess is made from the model's first layers.",
        )
        self.train = QCheckBox("Train: backward and a step, too")
        self.check_button = push_button("Check", self.check, look="primary")
        self.cancel_button = push_button("Cancel", self.cancel)
        self.offer_button = push_button(
            "Add two virtual GPUs", lambda: self.command_requested.emit(AddVirtual(spec=TWO_T4))
        )
        self.going = ElidedLabel(Role.LABEL, "dim")
        self.hint = label("", Role.LABEL, "dim", wrap=True)
        self.inputs.returnPressed.connect(self.check)
        self._lay_out()
        self.refresh()

    def _lay_out(self) -> None:
        fields = grid(10, 6)
        for row, (words, field) in enumerate((("model", self.model), ("device", self.device), ("inputs", self.inputs))):
            name = label(words, Role.LABEL, "dim")
            name.setBuddy(field)
            fields.addWidget(name, row, 0)
            fields.addWidget(field, row, 1, 1, 1 if field is self.model else 2)
        fields.addWidget(self.check_button, 0, 2)  # in the first row: also a low page shows it
        fields.addWidget(self.train, 3, 0, 1, 3)
        fields.setColumnStretch(1, 1)
        for button in (self.check_button, self.cancel_button):
            button.setFixedHeight(BUTTON_PX)
        vbox(
            fields,
            hbox((self.going, 1), self.cancel_button),
            self.hint,
            (self.offer_button, 0, Qt.AlignmentFlag.AlignLeft),
            None,
            margins=(EDGE_PX, 8, EDGE_PX, 6),
            parent=self,
        )
        self.setFixedWidth(WIDTH_PX)

    def set_target(self, target: str | None, held: tuple[str, ...]) -> None:
        """The model that is selected, and the devices that hold it."""
        self.target, self.device.held = target, held
        self.refresh()

    @property
    def running(self) -> Job | None:
        """The check that is under way."""
        return self._state.running(Check)

    @property
    def at_work(self) -> bool:
        """Whether it is this very model that is being checked."""
        return (job := self.running) is not None and _model_of(job) == self.target

    @property
    def why_not(self) -> str | None:
        """Why nothing can be checked now; None: it can."""
        if (reason := why_not_live(self._state)) is not None:
            return reason
        if self.target is None:
            return NO_MODEL
        return AT_WORK if self.running is not None else None

    def refresh(self) -> None:
        """Show everything as it is now."""
        self.device.refresh()
        job, reason = self.running, self.why_not
        self.model.set_full_text(self.target or "none is selected")
        self.check_button.setEnabled(reason is None)
        self.check_button.setToolTip(reason or ABOUT)
        self.cancel_button.setVisible(job is not None)
        self.going.setVisible(job is not None)
        if job is not None:
            percent = "" if job.done is None else f"  {100 * job.done:.0f} %"
            whose = "" if self.at_work else f"{_model_of(job)}: "  # another one was chosen since
            self.going.set_full_text(f"{whose}{job.text or job.title}{percent}")
        has_gpu = any(name != "cpu" for name in self._state.usable_devices)
        lacks = why_not_live(self._state) is None and not has_gpu
        if job is not None or reason == NO_MODEL:  # is said above
            reason = None
        show_text(self.hint, ONLY_CPU if lacks else reason or "")
        self.offer_button.setVisible(lacks and can_add_virtual(self._state))

    def check(self) -> None:
        """Ask for what the form says."""
        if self.why_not is None and self.target is not None and self.device.value is not None:
            inputs, train = self.inputs.text().strip(), self.train.isChecked()
            self.command_requested.emit(Check(target=self.target, device=self.device.value, train=train, inputs=inputs))

    def cancel(self) -> None:
        """End it."""
        job = self.running
        if job is not None:
            self.command_requested.emit(Cancel(job=job.request))


def _model_of(job: Job) -> str:
    return object_name(job.command.target) if isinstance(job.command, Check) else ""
