"""The Doctor tab: lets the placement doctor check a model, lists what it found, and shows the line. Main thread; reads
the state only."""

from __future__ import annotations

from msgspec.structs import replace
from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QCheckBox, QHeaderView, QWidget

from devexplorer.core.base import object_name
from devexplorer.core.records import AddVirtual, ApplyPatch, Cancel, Check, Diagnosis, Finding
from devexplorer.core.session import Job, State
from devexplorer.core.session.findings import findings_of
from devexplorer.gui.actions import TWO_T4
from devexplorer.gui.doctor.finding import (
    COLUMNS,
    FINDING,
    PATH,
    PLACE,
    RULE,
    FindingView,
    all_of_it,
    circumstances,
    sign_of,
    table_rows,
)
from devexplorer.gui.forms.device_choice import DeviceField
from devexplorer.gui.objects.answer_view import AnswerView
from devexplorer.gui.widgets import (
    CENTRE,
    EDGE_PX,
    RIGHT,
    ROW_PX,
    CutAtTheStart,
    ElidedLabel,
    Role,
    RowsModel,
    RowsTable,
    ShrinkingLabel,
    Sign,
    can_add_virtual,
    grid,
    hbox,
    holder,
    is_only_shown,
    label,
    line_edit,
    push_button,
    severity_tone,
    show_text,
    splitter,
    stack,
    thin_line,
    vbox,
    why_not_live,
)

WIDTH_PX = 248
BUTTON_PX = 26
NO_MODEL = "Select a model, or something in one."
AT_WORK = "The doctor is at work."
ONLY_CPU = "On the CPU alone nothing can be on the wrong device: virtual GPUs show what a move would break."
ABOUT_SCRIPT = (
    "Looks at the model, the source and what the script was seen to do. Nothing is moved or run: what needs that is"
    " listed as not checked."
)
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
            placeholder="auto, or 8x3x32x32",
            name="Shapes of the inputs",
            tip="One shape for each input, commas between them. Empty: inferred from the model's first layers.",
        )
        self.train = QCheckBox("Train: also backward and a step")
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
    def of_script(self) -> bool:
        """Whether the model is a running script's, which is looked at as it is."""
        return is_only_shown(self._state)

    @property
    def why_not(self) -> str | None:
        """Why nothing can be checked now; None: it can."""
        if not self.of_script and (reason := why_not_live(self._state)) is not None:
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
        self.check_button.setToolTip(reason or (ABOUT_SCRIPT if self.of_script else ABOUT))
        for field in (self.device, self.inputs, self.train):
            field.setEnabled(not self.of_script)
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
        if self.of_script:
            reason = ABOUT_SCRIPT
        show_text(self.hint, ONLY_CPU if lacks else reason or "")
        self.offer_button.setVisible(lacks and can_add_virtual(self._state))

    def check(self) -> None:
        """Ask for what the form says."""
        if self.why_not is not None or self.target is None:
            return
        if self.of_script:
            self.command_requested.emit(Check(target=self.target, device=""))
        elif self.device.value is not None:
            inputs, train = self.inputs.text().strip(), self.train.isChecked()
            self.command_requested.emit(Check(target=self.target, device=self.device.value, train=train, inputs=inputs))

    def cancel(self) -> None:
        """End it."""
        job = self.running
        if job is not None:
            self.command_requested.emit(Cancel(job=job.request))


def _model_of(job: Job) -> str:
    return object_name(job.command.target) if isinstance(job.command, Check) else ""


NOTHING = "Which line puts a tensor on the wrong device? Select a model and check it: nothing is changed."
WORKING = "Checking: the model is rebuilt in a separate process, moved and observed."
WORKING_ON_SCRIPT = "Checking: the model is looked at when the script's next step has ended."
CLEAN = "Nothing is wrong: every tensor was where it had to be."
OLD = "checked before it was changed"
_SIGN_PX, _HANDLE_PX, _LOW_ROW_PX = 16, 5, 40
NARROW_PX = 920
"""Below this width the chosen finding is below the list, not beside it."""
_SHARES, _STRETCHES = [630, 380], (3, 2)
_LOW_SHARES, _LOW_STRETCHES = [104, 160], (0, 1)
"""Of the list and the chosen finding."""
_WIDTHS_PX = [92, 220, 160, 112, 400]
"""Of the columns; the last, with the sentences, takes what is left."""


class DoctorPanel(QWidget):
    """`set_selection` says what is selected; `show_finding` brings one finding of a model to the front."""

    command_requested = Signal(object)
    target_chosen = Signal(str, str)
    """Something in a model is to be selected in the tree: name of the model, path of a finding."""
    patch_requested = Signal(object)
    """A patch is to be applied, if the user still says so when it is shown (`ApplyPatch`)."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._target: str | None = None
        self.diagnosis: Diagnosis | None = None
        """What is shown."""
        self.form = DoctorForm(state)
        self.form.command_requested.connect(self.command_requested)
        self.sign = Sign(size=_SIGN_PX)
        self.verdict = ShrinkingLabel()
        self.circumstances = ElidedLabel(Role.LABEL, "dim")
        self.circumstances.setAlignment(RIGHT)
        self.old = label(words="warning")
        self.model = RowsModel(COLUMNS)
        self.table = FindingsTable(self.model)
        self.failure = AnswerView("Why the model was not checked")
        self.failure.command_requested.connect(self.command_requested)
        self.nothing = label(NOTHING, words="dim", wrap=True, align=CENTRE)
        self.nothing.setContentsMargins(2 * EDGE_PX, EDGE_PX, 2 * EDGE_PX, 2 * EDGE_PX)
        self.finding = FindingView(lambda: state.machine)
        self._lay_out()
        self.table.selected.connect(self._show_chosen)
        self.table.activated.connect(self._activate)
        self.finding.path_requested.connect(self._choose_target)
        self.finding.patch_requested.connect(self._ask_for_patch)
        self.refresh()

    def _lay_out(self) -> None:
        head = hbox(self.sign, self.verdict, (self.circumstances, 1), self.old, margins=(EDGE_PX, 6, EDGE_PX, 4))
        self._head = holder(head)
        self._stack = stack(self.nothing, self.table, self.failure)
        self._results = holder(vbox(self._head, (self._stack, 1), spacing=0))
        self._both = splitter(self._results, self.finding, sizes=_SHARES, stretches=_STRETCHES, handle_px=_HANDLE_PX)
        self._both.setStyleSheet(
            "QSplitter::handle { background: palette(mid); } QSplitter::handle:horizontal { margin: 0 2px; }"
        )
        hbox(self.form, thin_line(upright=True), (self._both, 1), spacing=0, parent=self)

    # --- what the window calls

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """What is selected in the tree: the one model that all of it belongs to is the doctor's."""
        names = set(map(object_name, targets))
        models = [name for name in names if name in self._state.models]
        if len(models) == 1:
            self._target = models[0]
        self.refresh()

    def refresh(self) -> None:
        """Show everything as it is now."""
        snapshot = self._state.objects.get(self._target or "")
        if snapshot is None:
            self._target = None
        same = self.form.target == self._target
        self.form.set_target(self._target, () if snapshot is None or not snapshot.rows else snapshot.rows[0].devices)
        diagnosis = self._state.diagnoses.get(self._target or "")
        if diagnosis is not self.diagnosis:
            self.diagnosis = diagnosis
            self.model.set_rows([] if diagnosis is None else table_rows(diagnosis))
            if self.model.rows and self.table.selected_key is None:
                self.table.selectRow(0)
            if same and diagnosis is not None and diagnosis.outdated and self.form.why_not is None:
                self.command_requested.emit(replace(self._same_check(diagnosis), quiet=True))
        self._show_verdict()
        self._show_chosen()

    def show_finding(self, name: str, number: int) -> None:
        """Bring the line of one finding of a model's diagnosis to the front."""
        if name != self._target and name in self._state.diagnoses:
            self._target = name
            self.refresh()
        if self.table.select_key((FINDING, number)):
            self.finding.show_line()

    # --- inside

    def _show_verdict(self) -> None:
        at_work = self.form.at_work
        failed = None if at_work else self._state.check_failures.get(self._target or "")
        diagnosis = None if at_work else self.diagnosis  # what was found before may be wrong now
        if failed is not None:
            self.failure.show_answer(failed, ready=self.form.why_not is None)
            self._stack.setCurrentWidget(self.failure)
        else:
            self._stack.setCurrentWidget(self.table if diagnosis is not None and self.model.rows else self.nothing)
            words = NOTHING if diagnosis is None else CLEAN
            working = WORKING_ON_SCRIPT if self.form.of_script else WORKING
            self.nothing.setText(working if at_work else words)
        self._head.setVisible(failed is None and diagnosis is not None)
        if diagnosis is None:
            return
        sign = sign_of(diagnosis)
        icon_name = {"clean": "check", "not checked": "note"}.get(sign, sign)
        self.sign.show_icon(icon_name, severity_tone(sign))
        self.verdict.set_full_text(all_of_it(diagnosis))
        card = diagnosis.device_name.removeprefix("NVIDIA ")
        self.circumstances.set_full_text(circumstances(diagnosis), brief=card)
        self.old.setText(OLD if self._state.check_is_old(self._target or "") else "")

    def _show_chosen(self) -> None:
        key, diagnosis = self.table.selected_key, self.diagnosis
        if diagnosis is None or not isinstance(key, tuple) or self._stack.currentWidget() is not self.table:
            self.finding.setVisible(False)
            return
        kind, number = key
        self.finding.setVisible(True)
        if kind == FINDING:
            found = findings_of(diagnosis)[number]
            self.finding.show_finding(found, applied=self._is_applied(found))
        else:
            self.finding.show_unchecked(diagnosis.unchecked[number])

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = event.size().width() < NARROW_PX
        if narrow != (self._both.orientation() == Qt.Orientation.Vertical):
            self._both.setOrientation(Qt.Orientation.Vertical if narrow else Qt.Orientation.Horizontal)
            self._both.setHandleWidth(1 if narrow else _HANDLE_PX)
            self.table.verticalHeader().setMaximumSectionSize(_LOW_ROW_PX if narrow else -1)
            for index, stretch in enumerate(_LOW_STRETCHES if narrow else _STRETCHES):
                self._both.setStretchFactor(index, stretch)
            self._both.setSizes(_LOW_SHARES if narrow else _SHARES)

    def _activate(self, index: QModelIndex) -> None:
        """Double-click or Return: the line, and in the tree what it is about."""
        key = self.model.rows[index.row()].key
        self.finding.show_line()
        if isinstance(key, tuple) and key[0] == FINDING and self.diagnosis is not None:
            self._choose_target(findings_of(self.diagnosis)[key[1]].path)

    def _ask_for_patch(self, finding: Finding) -> None:
        found = self.diagnosis
        if found is not None and finding.patch is not None:
            again = self._same_check(found)
            patch = ApplyPatch(file=finding.file, patch=finding.patch, digest=finding.digest, again=again)
            self.patch_requested.emit(patch)

    def _same_check(self, found: Diagnosis) -> Check:
        """What found this, of the model as it is now."""
        return Check(target=self._target or "", device=found.device, train=found.train, inputs=found.inputs)

    def _is_applied(self, finding: Finding) -> bool:
        """Whether the patch was applied since the check that found this."""
        for done in reversed(self._state.done):
            match done.command:
                case ApplyPatch(patch=finding.patch, digest=finding.digest) if done.ok:
                    return True
                case Check(target=self._target) if done.ok:
                    return False
        return False

    def _choose_target(self, path: str) -> None:
        if self._target is not None:
            self.target_chosen.emit(self._target, path)


class FindingsTable(RowsTable):
    """Double-click and Return are `activated`. Sentences have as many lines as they need, two in a low list."""

    def __init__(self, model: RowsModel) -> None:
        super().__init__(model, "Findings", _WIDTHS_PX, gives_up=(RULE, PATH, PLACE))
        self.setWordWrap(True)
        lines = self.verticalHeader()
        lines.setMinimumSectionSize(ROW_PX)
        lines.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.horizontalHeader().sectionResized.connect(self.resizeRowsToContents)
        for column in (PATH, PLACE):
            self.setItemDelegateForColumn(column, CutAtTheStart(self))
