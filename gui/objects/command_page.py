"""What the pages of the Experiments tab have in common: a form, Run and Stop, and the latest answer beside a picture.
Main thread.

Commands that are on their way and those that are over are found in the state by their kind: an experiment that was
asked for elsewhere (the context menu, the palette) is shown here too.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLineEdit,
    QStackedLayout,
    QWidget,
)

from devexplorer.core.base.errors import BadInput
from devexplorer.core.records.messages import AddVirtual, Cancel, Command
from devexplorer.core.session.jobs import Done, Job
from devexplorer.core.session.state import State
from devexplorer.gui.actions.controller import TWO_T4
from devexplorer.gui.objects.answer_view import AnswerView
from devexplorer.gui.widgets.device_choice import DeviceChoice
from devexplorer.gui.widgets.facts import FactsTable
from devexplorer.gui.widgets.form_fields import Choice, FormRow, labelled
from devexplorer.gui.widgets.layouts import CENTRE, ScrollArea, hbox, holder, push_button, vbox
from devexplorer.gui.widgets.panel import EDGE_PX, ElidedLabel, can_add_virtual, label, why_not_live
from devexplorer.gui.widgets.plain_text import tip
from devexplorer.gui.widgets.theme import Role, Theme

BUTTON_PX = 26


class ExperimentPage(QWidget):
    """Subclasses add fields, say with `command` what they come to, and show what came out beside the answer."""

    command_requested = Signal(object)
    """An experiment, its `Cancel`, or the command of an offer."""
    kind: type
    """The command."""
    title: str
    meaning: str
    """One line, for the rail."""
    action: str
    """What the button says."""
    nothing: str
    """Shown before the first answer."""

    def __init__(self, state: State, theme: Theme) -> None:
        super().__init__()
        self._state, self._theme = state, theme
        self._targets: tuple[str, ...] = ()
        self.run_button = push_button(self.action, self.run, look="primary")
        self.stop_button = push_button("Stop", self.stop)
        self.hint = ElidedLabel(Role.LABEL, "dim")
        self.answer = AnswerView(f"{self.title}: the latest answer")
        self.answer.command_requested.connect(self.command_requested)
        self.nothing_words = label(self.nothing, words="dim", wrap=True, align=CENTRE)
        self.offer_button = push_button(
            "Add two virtual GPUs", lambda: self.command_requested.emit(AddVirtual(spec=TWO_T4))
        )
        self._fields = FormRow()
        self._fields.row.addStretch(1)  # takes what the fields leave: their names would drift away from them
        self._device_fields: list[DeviceChoice | DeviceField] = []
        self._results = QStackedLayout()
        self._lay_out()

    def _lay_out(self) -> None:
        top = Qt.AlignmentFlag.AlignTop  # the fields become higher where they have to scroll
        form = hbox((self._fields, 0, top), margins=(0, 6, EDGE_PX, 4))
        for button in (self.run_button, self.stop_button):
            button.setFixedHeight(BUTTON_PX)
            form.addWidget(button, 0, top)
        self.hint.setFixedHeight(BUTTON_PX)
        self._place_hint(form)
        offer = (self.offer_button, 0, Qt.AlignmentFlag.AlignHCenter)
        margins = (2 * EDGE_PX, 0, 2 * EDGE_PX, 0)
        self._empty = holder(vbox((None, 2), self.nothing_words, offer, (None, 3), spacing=EDGE_PX, margins=margins))
        self._beside = hbox()
        self._shown = holder(self._beside)
        # before its widgets: one that has no parent yet would be shown as a window
        vbox(form, (self._results, 1), spacing=0, margins=(0, 0, 0, 4), parent=self)
        self._results.addWidget(self._empty)
        self._results.addWidget(self._shown)

    def _place_hint(self, form: QHBoxLayout) -> None:
        """Where it is said how it goes and what is missing: behind the buttons."""
        form.addWidget(self.hint, 1, Qt.AlignmentFlag.AlignTop)

    def add_field(self, words: str, field: QWidget) -> None:
        """Put a field behind its name into the form."""
        if isinstance(field, DeviceChoice | DeviceField):
            self._device_fields.append(field)
        row = self._fields.row
        row.insertWidget(row.count() - 1, labelled(words, field) if words else field)
        if isinstance(field, QLineEdit):
            field.textChanged.connect(self.check)
            field.returnPressed.connect(self.run)
        elif isinstance(field, DeviceChoice):
            field.changed.connect(self.check)
        elif isinstance(field, Choice):
            field.currentIndexChanged.connect(self.check)

    def set_picture(self, picture: QWidget, *, shares: tuple[int, int] = (2, 3)) -> None:
        """Show a picture beside the answer; `shares`: of the room that answer and picture get. It scrolls where it
        has no room."""
        self._beside.addWidget(self.answer, shares[0])
        self._beside.addWidget(ScrollArea(picture, sideways=True), shares[1])

    # --- what a page has to say

    def command(self) -> Command:
        """What the form asks for. Raises one `BadInput` with everything that is wrong."""
        raise NotImplementedError

    def show_result(self, done: Done) -> None:
        """Show in the picture what came of the latest one."""
        raise NotImplementedError

    @property
    def lacks_devices(self) -> bool:
        """Whether virtual GPUs are what this machine needs for it."""
        return False

    # --- what the panel calls

    def set_theme(self, theme: Theme) -> None:
        """Colours from now on."""
        self._theme = theme
        self.refresh()

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """What is selected in the tree."""
        self._targets = targets
        self.refresh()

    def refresh(self) -> None:
        """Show devices, objects and answers as they are now."""
        for field in self._device_fields:
            field.refresh()
        done = self.latest
        self._results.setCurrentWidget(self._empty if done is None else self._shown)
        if done is not None and done.answer is not None:
            self.answer.show_answer(done.answer, ready=why_not_live(self._state) is None)
            self.show_result(done)
        self.offer_button.setVisible(self.lacks_devices and can_add_virtual(self._state))
        self.offer_button.setEnabled(why_not_live(self._state) is None)
        self.check()

    @property
    def latest(self) -> Done | None:
        """The newest experiment of this kind that was answered."""
        return next(
            (
                done
                for done in reversed(self._state.done)
                if isinstance(done.command, self.kind) and done.answer is not None
            ),
            None,
        )

    @property
    def running(self) -> Job | None:
        """The one that is under way."""
        return next((job for job in self._state.jobs.values() if isinstance(job.command, self.kind)), None)

    @property
    def is_empty(self) -> bool:
        """Whether there is no answer yet."""
        return self._results.currentWidget() is self._empty

    def check(self) -> None:
        """Let Run be as can_add_virtual(self._state) as the form is right, with the reason in its tooltip."""
        job, reason = self.running, why_not_live(self._state)
        words = ""
        if reason is None:
            try:
                self.command()
            except BadInput as error:
                words = reason = ". ".join(finding[:1].upper() + finding[1:] for finding in error.findings)
        self.run_button.setEnabled(reason is None and job is None)
        self.run_button.setToolTip(tip(reason) if reason else "It runs." if job is not None else self.meaning)
        self.stop_button.setVisible(job is not None)
        going = "" if job is None else job.text or job.title
        percent = "" if job is None or job.done is None else f"  {100 * job.done:.0f} %"
        self.hint.set_full_text(f"{going}{percent}" if job is not None else words)

    def run(self) -> None:
        """Ask for what the form says."""
        if self.run_button.isEnabled():
            self.command_requested.emit(self.command())

    def stop(self) -> None:
        """End it at its next step."""
        job = self.running
        if job is not None:
            self.command_requested.emit(Cancel(job=job.request))


class FactsPage(ExperimentPage):
    """A page whose picture is the answer's facts."""

    def __init__(self, state: State, theme: Theme) -> None:
        super().__init__(state, theme)
        self.facts = FactsTable()
        self.set_picture(holder(vbox(self.facts, None, margins=(EDGE_PX, 4, EDGE_PX, 4))), shares=(1, 1))

    def show_result(self, done: Done) -> None:
        """See `ExperimentPage`."""
        if done.answer is not None:
            self.facts.set_facts(done.answer.facts)


class DeviceField(Choice):
    """One usable device; `without_cpu` leaves the CPU out. Until the user picks, it is one that holds the object, or
    else the first accelerator."""

    def __init__(self, state: State, *, without_cpu: bool = False) -> None:
        super().__init__("Device")
        self._state, self._without_cpu = state, without_cpu
        self._picked = False
        self.held: tuple[str, ...] = ()
        """Devices that hold the object that this is about."""
        self.activated.connect(self._pick)
        self.refresh()

    def _pick(self) -> None:
        self._picked = True

    def refresh(self) -> None:
        """Follow the list of devices."""
        usable = sorted(self._state.usable_devices, key=lambda name: name == "cpu")  # the CPU last
        if self._without_cpu:
            usable = [name for name in usable if name != "cpu"]
        infos = [self._state.devices[name].info for name in usable]
        self.offer((info.id, f"{info.id}{' (simulated)' if info.simulated else ''}", info.name) for info in infos)
        if not self._picked:
            holding = [name for name in usable if name in self.held]
            self.choose(next((name for name in (*holding, *usable) if name != "cpu"), "cpu"))
