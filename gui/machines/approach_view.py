"""A connection that is being made, step by step: what is done, what ssh asks, and why it failed. Main thread."""

from __future__ import annotations

from typing import get_args

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPlainTextEdit, QProgressBar, QWidget

from devexplorer.core.records.ssh import FailureKind, Step
from devexplorer.gui.machines.approach import Approach
from devexplorer.gui.machines.prompt_box import PromptBox
from devexplorer.gui.widgets import (
    Role,
    Sign,
    TextBlock,
    font,
    hbox,
    holder,
    label,
    push_button,
    set_look,
    severity_tone,
    show_text,
    vbox,
)

STEPS: dict[Step, str] = {
    "connecting": "Log in to {host}",
    "python": "Look for Python there",
    "code": "Copy DevExplorer's code",
    "packages": "Get the packages that are missing",
    "starting": "Start DevExplorer there",
}
HELPS: dict[FailureKind, str] = {
    "unknown host": "Check the name, or add the machine to ~/.ssh/config.",
    "refused": "Check the name and the port, and that sshd runs on that machine.",
    "unreachable": "Check that you are in the right network or VPN.",
    "timed out": "Check that you are in the right network or VPN, and that the machine is on.",
    "denied": "Check the user name (user@name) and that your key or password is accepted: 'ssh {host}' should log in.",
    "host key unknown": "Connect again and compare the fingerprint before you accept it.",
    "login ended": "Let the login scripts of that machine end quietly when the shell is not interactive.",
    "login waits": "A login script asks for something, or waits: let it do so in interactive shells only.",
    "login floods": "Let the login scripts of that machine print in interactive shells only.",
    "no python": "Install Python 3.11 or newer there, or name the path of one.",
    "old python": "Name the path of a newer Python on that machine.",
    "python refused": "Name another Python on that machine.",
    "no torch": "Enter the path of a Python there, or of its environment.",
    "packages": "Details say what pip answered. An administrator can install them in that environment.",
    "lost": "Try again; what runs on that machine goes on.",
}
"""What would help, where it is not said already."""
DETAILS_PX = 120


class ApproachView(QWidget):
    """`show_approach` follows one; `refresh` at each beat."""

    resized = Signal()
    """It needs another height."""

    def __init__(self) -> None:
        super().__init__()
        self._approach: Approach | None = None
        self.steps = {step: label("", words="dim") for step in get_args(Step)}
        self.bar = QProgressBar(textVisible=False)
        self.bar.setRange(0, 1000)
        self.prompt = PromptBox()
        self.prompt.hide()
        self.prompt.answered.connect(self._answer)
        self._sign = Sign("error", severity_tone("error"))
        self.failure = TextBlock()
        self.help = label("", words="dim", wrap=True)
        self._failed = holder(vbox(hbox(self._sign, (self.failure, 1)), self.help, spacing=6))
        self.details_button = push_button("Details", self._fold, look="quiet")
        self.details_button.setAutoDefault(False)
        self.details_button.setCheckable(True)
        self.details = QPlainTextEdit(readOnly=True)
        self.details.setProperty("look", "code")
        self.details.setAccessibleName("What ssh and the login scripts of that machine printed")
        self.details.setFont(font(Role.CODE))
        self.details.setFixedHeight(DETAILS_PX)
        self.details.hide()
        vbox(
            holder(vbox(*self.steps.values(), spacing=4)),
            self.bar,
            self.prompt,
            self._failed,
            hbox(self.details_button, None),
            self.details,
            None,
            spacing=10,
            parent=self,
        )

    def show_approach(self, approach: Approach) -> None:
        """Follow this one."""
        self._approach = approach
        approach.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show what is the case now."""
        approach = self._approach
        if approach is None:
            return
        failure = approach.way.failure
        order = list(self.steps)
        at = -1 if approach.step is None else order.index(approach.step.step)
        for number, (step, line) in enumerate(self.steps.items()):
            mark = "✓" if number < at else "✕" if number == max(at, 0) and failure else "●" if number == at else "○"
            words = STEPS[step].format(host=approach.way.host)
            detail = "" if approach.step is None or number != at else approach.step.detail
            line.setText(f"{mark} {words}: {detail}" if detail else f"{mark} {words}")
            set_look(line, "soft" if number <= at else "dim")
        done = None if approach.step is None else approach.step.done
        self.bar.setVisible(failure is None)
        self.bar.setRange(0, 0 if done is None else 1000)
        if done is not None:
            self.bar.setValue(int(done * 1000))
        if approach.prompt is not None and failure is None:
            self.prompt.ask(approach.prompt, again=approach.asks_again)
            self.bar.hide()
        else:
            self.prompt.clear()
        self._show_failure()
        said = "\n".join(approach.said)
        if said != self.details.toPlainText():
            self.details.setPlainText(said)
        self.details_button.setVisible(bool(said))
        self.details.setVisible(bool(said) and self.details_button.isChecked())
        self.resized.emit()

    def _show_failure(self) -> None:
        from devexplorer.core.ssh.failures import failure_text  # loaded with the first connection

        assert self._approach is not None
        failure = self._approach.way.failure
        self._failed.setVisible(failure is not None)
        if failure is not None:
            self.failure.setText(f"{failure_text(failure).rstrip('.')}.")
            show_text(self.help, HELPS.get(failure.kind, "").format(host=failure.host))

    def _fold(self) -> None:
        self.details.setVisible(self.details_button.isChecked())
        self.resized.emit()

    def _answer(self, text: str | None) -> None:
        if self._approach is not None:
            self._approach.answer(text)
