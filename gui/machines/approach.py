"""How a machine is being reached: what is being done, what ssh asks, what it said; the dialog that connects to one.
Main thread; `beat` takes what the connection's threads have reported, nothing waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, get_args

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QFrame, QLineEdit, QProgressBar, QWidget

from devexplorer.core.base import BadInput, sentence
from devexplorer.core.machines.ssh.hosts import checked
from devexplorer.core.machines.ssh.records import (
    ConnectionFailure,
    ConnectProgress,
    FailureKind,
    Prompt,
    PromptKind,
    Said,
    Step,
    Withdrawn,
)
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import (
    EDGE_PX,
    ROW_PX,
    Cell,
    Column,
    Role,
    RowsTable,
    Sign,
    TableRow,
    TextBlock,
    code_text,
    hbox,
    holder,
    label,
    line_edit,
    push_button,
    set_look,
    severity_tone,
    show_text,
    vbox,
)

if TYPE_CHECKING:
    from devexplorer.core.machines.window.link import Route


MOST_LINES = 500
"""Of what ssh and the login scripts said; the newest are kept."""


class Approach(QObject):
    """`prompt` is what waits for the user, `step` what is being done."""

    changed = Signal()
    asked = Signal()
    """ssh has begun to wait for the user."""

    def __init__(self, way: Route, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.way = way
        self.name = way.host
        """Of the machine in this window; a script that runs on the host has another."""
        self.step: ConnectProgress | None = None
        self.said: deque[str] = deque(maxlen=MOST_LINES)
        self._prompts: dict[int, Prompt] = {}
        self._answered = ""
        """What was asked and answered last in this attempt."""
        self._failure: ConnectionFailure | None = None
        """The last one that was told."""

    @property
    def prompt(self) -> Prompt | None:
        """The oldest one that was not answered."""
        return next(iter(self._prompts.values()), None)

    @property
    def asks_again(self) -> bool:
        """Whether the prompt is the one that was answered just now: ssh did not accept the answer, and need not say
        so."""
        return self.prompt is not None and self.prompt.text == self._answered

    def beat(self) -> None:
        """Take what was reported."""
        before = self.prompt
        reports = self.way.reports()
        failed, self._failure = self.way.failure is not self._failure, self.way.failure
        for report in reports:
            if isinstance(report, Prompt):
                self._prompts[report.number] = report
            elif isinstance(report, Withdrawn):
                self._prompts.pop(report.number, None)
            elif isinstance(report, Said):
                self.said.append(report.text)
            else:
                self.step = report
        if reports or failed:
            self.changed.emit()
        if self.prompt is not None and self.prompt is not before:
            self.asked.emit()

    def begin(self) -> None:
        """Another attempt: what the last one said is no longer of interest."""
        self.step = None
        self.said.clear()
        self._prompts.clear()
        self._answered = ""
        self.changed.emit()

    def answer(self, text: str | None) -> None:
        """Answer the prompt; None refuses. Nothing is kept."""
        prompt = self.prompt
        if prompt is not None:
            del self._prompts[prompt.number]
            self._answered = prompt.text
            self.way.answer(prompt.number, text)
            self.changed.emit()


HEADINGS: dict[PromptKind, str] = {
    "password": "Password",
    "passphrase": "Passphrase of a key",
    "code": "Code",
    "host key": "Is this the right machine?",
    "confirmation": "Confirmation",
    "notice": "ssh says",
}
YES: dict[PromptKind, str] = {"host key": "It is, connect", "confirmation": "Allow"}
"""Kinds of prompts that are answered with yes or no, and what yes means."""
NEVER_KEPT = "The answer goes to ssh and is not stored."
NOT_ACCEPTED = "The last answer was not accepted."
ABOUT_KEYS = (
    "Compare the fingerprint with one that the administrator of that machine has given you. ssh remembers the key in"
    " ~/.ssh/known_hosts."
)


class PromptBox(QFrame):
    """`answered` carries the text; None: the user refuses."""

    answered = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("offer")
        self.heading = label("", Role.STRONG)
        self.text = TextBlock(Role.CODE)
        self.note = label(words="dim", wrap=True)
        self.field = line_edit(name="Answer")
        self.field.returnPressed.connect(self._send)
        self.send_button = push_button("Send", self._send, look="primary")
        self.refuse_button = push_button("No", lambda: self._answer(None))
        for button in (self.send_button, self.refuse_button):
            button.setAutoDefault(False)
        vbox(
            self.heading,
            self.text,
            self.note,
            hbox((self.field, 8), None, self.refuse_button, self.send_button),
            margins=EDGE_PX,
            parent=self,
        )
        self._kind: PromptKind = "notice"
        self._number = -1

    def ask(self, prompt: Prompt, *, again: bool = False) -> None:
        """Show this prompt, with an empty field; `again`: what was answered before was not accepted."""
        if prompt.number == self._number and self.isVisible():
            return
        self._number, self._kind = prompt.number, prompt.kind
        yes = YES.get(prompt.kind)
        is_typed = yes is None and prompt.kind != "notice"
        self.heading.setText(HEADINGS[prompt.kind])
        self.text.setText(prompt.text.strip())
        about = ""
        if prompt.kind == "host key":
            about = ABOUT_KEYS
        elif is_typed:
            about = NEVER_KEPT
        show_text(self.note, f"{NOT_ACCEPTED} {about}" if again and is_typed else about)
        self.field.clear()
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        self.field.setAccessibleName(HEADINGS[prompt.kind])
        self.field.setVisible(is_typed)
        self.send_button.setVisible(prompt.kind != "notice")
        self.send_button.setText(yes or "Send")
        self.refuse_button.setVisible(yes is not None)
        self.setAccessibleName(prompt.text)
        self.show()
        # an Enter too many accepts nothing
        first = self.field if is_typed else self.refuse_button
        first.setFocus(Qt.FocusReason.OtherFocusReason)

    def clear(self) -> None:
        """Nothing is asked."""
        self._number = -1
        self.field.clear()
        self.hide()

    def _send(self) -> None:
        self._answer("yes" if self._kind in YES else self.field.text())

    def _answer(self, text: str | None) -> None:
        self.clear()
        self.answered.emit(text)


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
        self.steps = {step: label(words="dim") for step in get_args(Step)}
        self.bar = QProgressBar(textVisible=False)
        self.bar.setRange(0, 1000)
        self.prompt = PromptBox()
        self.prompt.hide()
        self.prompt.answered.connect(self._answer)
        self._sign = Sign("error", severity_tone("error"))
        self.failure = TextBlock()
        self.help = label(words="dim", wrap=True)
        self._failed = holder(vbox(hbox(self._sign, (self.failure, 1)), self.help, spacing=6))
        self.details_button = push_button("Details", self._fold, look="quiet")
        self.details_button.setAutoDefault(False)
        self.details_button.setCheckable(True)
        self.details = code_text("What ssh and the login scripts of that machine printed")
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
            if number < at:
                mark = "✓"
            elif number == max(at, 0) and failure:
                mark = "✕"
            elif number == at:
                mark = "●"
            else:
                mark = "○"
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
        from devexplorer.core.machines.ssh.records import failure_text  # loaded with the first connection

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


WIDTH_PX, ROWS = 560, 7
BEFORE, CONFIGURED = "connected before", "~/.ssh/config"
OF_PYTHON: tuple[FailureKind, ...] = ("no python", "old python", "python refused", "no torch")
"""Failures that another Python there may mend."""
WORDS = (
    "DevExplorer connects with your own ssh, its configuration and keys. Its code and the packages that it needs are"
    " put into your cache folder on that machine; nothing is installed."
)


class OfferedMachine(NamedTuple):
    """A machine that is offered."""

    host: str
    where: str
    """Where it is known from."""
    python: str = ""
    """The Python that was chosen there."""


class ConnectDialog(FormDialog):
    """Choose, then follow. `wanted` carries the host and the Python there; whoever connects calls `follow`."""

    wanted = Signal(str, str)
    given_up = Signal()
    """The user cancelled while it was connecting, or closed the dialog after it failed."""

    def __init__(self, known: Sequence[OfferedMachine], taken: Sequence[str], parent: QWidget | None = None) -> None:
        """`taken`: machines that are connected already."""
        super().__init__("Connect to a machine", "Connect", WIDTH_PX, parent)
        self._known, self._taken = list(known), set(taken)
        self._approach: Approach | None = None
        self.set_words(WORDS)
        self.host = line_edit(placeholder="gpu1, or user@gpu1", name="Machine")
        self.python = line_edit(placeholder="automatic: the first with a torch that works", name="Python there")
        self.table = RowsTable((Column("known machines"), Column("")), "Known machines", [300, 160], stretched=0)
        self.table.setFixedHeight((ROWS + 1) * ROW_PX)
        self.view = ApproachView()
        self.view.hide()
        self.add_row("machine", self.host)
        self.add_row("Python there", self.python)
        self.add_part(self.table)
        self.add_part(self.view, 1)
        self.back_button = push_button("Back", self._go_back)
        self.back_button.hide()
        self.add_button(self.back_button)
        self.host.textChanged.connect(self._filter)
        self.table.selected.connect(self._take_known)
        self.table.activated.connect(self.accept_button.click)
        self.view.resized.connect(self.fit)
        self._filter()

    def show_known(self, known: Sequence[OfferedMachine]) -> None:
        """These are offered: they were read since."""
        self._known = list(known)
        self._filter()

    def choose(self, host: str, python: str = "") -> None:
        """Have this one chosen, with the Python that it had the last time where none is named."""
        known = next((one.python for one in self._known if one.host == host), "")
        self.host.setText(host)
        self.python.setText(python or known)

    # --- choosing

    def _filter(self) -> None:
        typed = self.host.text().strip().lower()
        chosen = self.table.selected_key
        if chosen is None or chosen != self.host.text().strip():  # not while the list is gone through with the arrows
            listed = [one for one in self._known if typed in one.host.lower()] or self._known
            self.table.set_rows([TableRow(one.host, (Cell(one.host), Cell(one.where, "dim"))) for one in listed])
        self.table.setVisible(bool(self._known) and self._approach is None)
        self._check()

    def _check(self) -> None:
        if self._approach is not None:
            return
        host = self.host.text().strip()
        try:
            if not host:
                self.say("Choose a machine, or enter its name as ssh takes it.", ready=False)
            elif checked(host) in self._taken:
                self.say(f"{host} is connected already.", wrong=True)
            else:
                self.say(f"Connects as 'ssh {host}' does.")
        except BadInput as error:
            self.say(sentence(str(error)), wrong=True)

    def _take_known(self) -> None:
        host = self.table.selected_key
        if isinstance(host, str):
            self.choose(host)

    # --- connecting

    def _accept(self) -> None:
        self.wanted.emit(checked(self.host.text()), self.python.text().strip())

    def follow(self, approach: Approach) -> None:
        """Show how far this connection is."""
        self._approach = approach
        self._show_parts(choosing=False)
        self.say("")
        self.view.show_approach(approach)
        approach.changed.connect(self._show_end)
        self._show_end()

    def connected(self) -> None:
        """It is shown: there is nothing more to do here."""
        self._approach = None
        self.accept()

    def _failure(self) -> FailureKind | None:
        failure = None if self._approach is None else self._approach.way.failure
        return None if failure is None else failure.kind

    def _show_end(self) -> None:
        failure = self._failure()
        failed = failure is not None
        self.back_button.setVisible(failed)
        self.back_button.setText("Choose a Python" if failure in OF_PYTHON else "Back")
        self.accept_button.setVisible(failed)
        self.accept_button.setText("Try again")
        self.cancel_button.setText("Close" if failed else "Cancel")

    def _go_back(self) -> None:
        first = self.python if self._failure() in OF_PYTHON else self.host
        self._approach = None
        self.given_up.emit()
        self._show_parts(choosing=True)
        self.accept_button.setText("Connect")
        self._filter()
        self.fit()
        first.setFocus()

    def _show_parts(self, *, choosing: bool) -> None:
        self.words.setVisible(choosing)
        for field in (self.host, self.python):
            self.form.setRowVisible(field, choosing)
        self.table.setVisible(choosing and bool(self._known))
        self.view.setVisible(not choosing)
        self.back_button.setVisible(False)
        self.accept_button.setVisible(choosing)
        self.cancel_button.setText("Cancel")

    def reject(self) -> None:
        """Cancel the attempt as well; a second time closes what failed."""
        if self._approach is not None:
            self._approach.answer(None)
            self.given_up.emit()
        super().reject()


class AskDialog(FormDialog):
    """ssh asks for something on the way to a machine that has no other dialog."""

    def __init__(self, approach: Approach, parent: QWidget | None = None) -> None:
        super().__init__(f"Log in to {approach.way.host}", "", WIDTH_PX, parent)
        self._approach = approach
        self.accept_button.hide()
        self.view = ApproachView()
        self.add_part(self.view, 1)
        self.view.resized.connect(self.fit)
        self.view.show_approach(approach)
        self.say("")

    def reject(self) -> None:
        """Refuse what is asked."""
        self._approach.answer(None)
        super().reject()
