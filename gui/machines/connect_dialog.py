"""The dialog that connects to a machine: which one, then how far it is. Main thread; nothing waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from devexplorer.core.base import BadInput, sentence
from devexplorer.core.machines.ssh.hosts import checked
from devexplorer.core.machines.ssh.records import FailureKind
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.machines.approach import Approach, ApproachView
from devexplorer.gui.widgets import ROW_PX, Cell, Column, RowsModel, RowsTable, TableRow, line_edit, push_button

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
        self.model = RowsModel((Column("known machines"), Column("")))
        self.table = RowsTable(self.model, "Known machines", [300, 160], stretched=0)
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
        self.table.selectionModel().selectionChanged.connect(self._take_known)
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
            self.model.set_rows([TableRow(one.host, (Cell(one.host), Cell(one.where, "dim"))) for one in listed])
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

    def _show_end(self) -> None:
        failure = None if self._approach is None else self._approach.way.failure
        failed = failure is not None
        self.back_button.setVisible(failed)
        of_python = failure is not None and failure.kind in OF_PYTHON
        self.back_button.setText("Choose a Python" if of_python else "Back")
        self.accept_button.setVisible(failed)
        self.accept_button.setText("Try again")
        self.cancel_button.setText("Close" if failed else "Cancel")

    def _go_back(self) -> None:
        failure = None if self._approach is None else self._approach.way.failure
        self._approach = None
        self.given_up.emit()
        self._show_parts(choosing=True)
        self.accept_button.setText("Connect")
        self._filter()
        self.fit()
        (self.python if failure is not None and failure.kind in OF_PYTHON else self.host).setFocus()

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
    """A machine that is being reconnected asks for something."""

    def __init__(self, approach: Approach, parent: QWidget | None = None) -> None:
        super().__init__(f"Reconnect {approach.way.host}", "", WIDTH_PX, parent)
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
