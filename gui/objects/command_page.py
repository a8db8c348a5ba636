"""What the pages of the Experiments tab have in common: a form, its button and Stop, and the latest answer beside a
picture. Main thread.

Commands that are on their way and those that are over are found in the state by their kind: an experiment that was
asked for elsewhere (the context menu, the palette) is shown here too.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from devexplorer.core.base import BadInput
from devexplorer.core.records import AddVirtual, Cancel, Command
from devexplorer.core.session import FinishedCommand, Job, State
from devexplorer.gui.actions import TWO_T4
from devexplorer.gui.forms.page import BUTTON_PX, FormPage
from devexplorer.gui.objects.answer_view import AnswerView
from devexplorer.gui.widgets import ScrollArea, can_add_virtual, hbox, holder, why_not_live


class ExperimentPage(FormPage):
    """Subclasses add fields, say with `command` what they come to, and show what came out beside the answer."""

    command_requested = Signal(object)
    """An experiment, its `Cancel`, or the command of an offer."""
    kind: type
    """The command."""
    meaning: str
    """One line, for the rail."""
    fewest = 0
    """Devices that it takes."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._targets: tuple[str, ...] = ()
        self.answer = AnswerView(f"{self.title}: the latest answer")
        self.answer.command_requested.connect(self.command_requested)
        self.empty.button.setText("Add two virtual GPUs")
        self.empty.chosen.connect(lambda: self.command_requested.emit(AddVirtual(spec=TWO_T4)))
        self.stop_button.hide()
        self.hint.setFixedHeight(BUTTON_PX)
        self._place_hint(self._form)
        self._beside = hbox()
        self._shown = holder(self._beside)
        self._results.addWidget(self._shown)

    def _place_hint(self, form: QHBoxLayout) -> None:
        """Where it is said how it goes and what is missing: behind the buttons."""
        form.addWidget(self.hint, 1, Qt.AlignmentFlag.AlignTop)

    def set_picture(self, picture: QWidget, *, shares: tuple[int, int] = (2, 3)) -> None:
        """Show a picture beside the answer; `shares`: of the room that answer and picture get. It scrolls where it
        has no room."""
        self._beside.addWidget(self.answer, shares[0])
        self._beside.addWidget(ScrollArea(picture, sideways=True), shares[1])

    # --- what a page has to say

    def command(self) -> Command:
        """What the form asks for. Raises one `BadInput` with everything that is wrong."""
        raise NotImplementedError

    def show_result(self, done: FinishedCommand) -> None:
        """Show in the picture what came of the latest one."""
        raise NotImplementedError

    @property
    def why_not(self) -> str | None:
        """Why nothing can be asked for now; None: it can."""
        return why_not_live(self._state)

    @property
    def lacks_devices(self) -> bool:
        """Whether virtual GPUs are what this machine needs for it."""
        return len(self._state.usable_devices) < self.fewest

    # --- what the panel calls

    def set_selection(self, targets: tuple[str, ...]) -> None:
        """What is selected in the tree."""
        self._targets = targets
        self.refresh()

    def refresh(self) -> None:
        """Show devices, objects and answers as they are now."""
        super().refresh()
        done = self.latest
        self._results.setCurrentWidget(self.empty if done is None else self._shown)
        if done is not None and done.answer is not None:
            self.answer.show_answer(done.answer, ready=why_not_live(self._state) is None)
            self.show_result(done)
        self.empty.button.setVisible(self.lacks_devices and can_add_virtual(self._state))
        self.empty.button.setEnabled(why_not_live(self._state) is None)
        self.check()

    @property
    def latest(self) -> FinishedCommand | None:
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
        return self._state.running(self.kind)

    def check(self) -> None:
        """Enable the button when the form is right; its tooltip says why not."""
        job, reason = self.running, self.why_not
        words = ""
        if reason is None:
            try:
                self.command()
            except BadInput as error:
                words = reason = ". ".join(finding[:1].upper() + finding[1:] for finding in error.findings)
        self.start_button.setEnabled(reason is None and job is None)
        self.start_button.setToolTip(reason or ("It runs." if job is not None else self.meaning))
        if self.stop_button.isHidden() == (job is not None):
            self._offer_stop(job is not None)
        going = "" if job is None else job.text or job.title
        percent = "" if job is None or job.done is None else f"  {100 * job.done:.0f} %"
        self.hint.set_full_text(f"{going}{percent}" if job is not None else words)

    def _offer_stop(self, stops: bool) -> None:
        """In the place of the button that starts it, so that the fields stay where they are."""
        first, second = (self.start_button, self.stop_button) if stops else (self.stop_button, self.start_button)
        had_focus = first.hasFocus()
        second.setMinimumWidth(first.sizeHint().width())
        first.hide()
        second.show()
        if had_focus:
            second.setFocus()

    def start(self) -> None:
        """Ask for what the form says."""
        if self.start_button.isEnabled():
            self.command_requested.emit(self.command())

    def stop(self) -> None:
        """End it at its next step."""
        job = self.running
        if job is not None:
            self.command_requested.emit(Cancel(job=job.request))
