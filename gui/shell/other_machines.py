"""The other machines of a window: adds them to what goes on behind it, and says how the link of the one shown stands.
Main thread only; loaded with the first of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from devexplorer.core.base import BadInput, sentence
from devexplorer.core.machines.questions import WriteScript
from devexplorer.core.machines.records import Text
from devexplorer.core.machines.window.machines import FarMachine, Machines
from devexplorer.core.session.script import marked
from devexplorer.gui.machines.machine_bar import MachineBar, age_text
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.machines.words import old_text

if TYPE_CHECKING:
    from devexplorer.core.machines.window.machines import Machines
    from devexplorer.gui.shell.app import App


class OtherMachines:
    """`beat` after each beat of the window, `close` at its end."""

    def __init__(self, app: App) -> None:
        self._app, self._shown, self._window = app, app.shown, app.window
        self.machines = Machines(app.shown.here, app.shown.show, self._changed)
        self.bar = MachineBar()
        self._window.add_bar(self.bar)
        self._hidden = False

    def _changed(self) -> None:
        self._shown.set_machines(self.machines.machines)
        self.set_hidden(self._hidden)
        self._window.context.machines_changed.emit()

    def set_hidden(self, hidden: bool) -> None:
        """Of machines that are not looked at a reading a second is enough."""
        self._hidden = hidden
        for machine in self.machines.far:
            machine.session.set_hidden(hidden or machine is not self._shown.machine)

    def beat(self) -> None:
        """Keep the links, and say what is not as it looks."""
        self.machines.beat()
        shown = self._shown.machine
        far = shown if isinstance(shown, FarMachine) and self._shown.instead is None else None
        self.bar.show_link(far)
        link = far.link if far is not None and far.is_late else None
        age = ("", "")
        if far is not None and link is not None and link.reading_age_s is not None:
            age = f"{old_text(link.reading_age_s)} ago", age_text(link, far.now())
        self._window.context.age = age[0]
        for panel in (self._window.devices, self._window.workbench):
            panel.set_age(*age)
        self._window.status.show_machine(far, self._instead_of_engine(), age[0])
        self._window.axis.set_still(self._shown.instead is not None or link is not None, age[0])

    def _instead_of_engine(self) -> str:
        """What the status bar says while no engine starts: this window has none here, or a host is not reached yet."""
        shown = self._shown.machine
        asked = self.machines.far if shown.session is None else (shown,)
        for machine in asked:
            if (link := machine.link) is not None and link.state == "connecting":
                return f"connecting to {machine.name}"
        return "engine: not started" if shown.session is None else ""

    def write_script(self, path: Path) -> None:
        """The session of the machine shown as Python, in a file of this one."""
        machine = self._shown.machine
        assert isinstance(machine, FarMachine)

        def came(answer: Text) -> None:
            try:
                text = marked(answer.text, machine.name, is_notebook=is_notebook)
            except BadInput as error:
                self._window.say(sentence(str(error)), error=True)
            else:
                self._app.write_script(path, text)

        is_notebook = path.suffix == ".ipynb"
        question = WriteScript(notebook=is_notebook)
        machine.session.ask(question, came, lambda problem: self._window.say(problem, error=True))

    def close(self, deadline_s: float) -> None:
        """End the connections; what runs there goes on."""
        self.machines.close(deadline_s)
        room_of(self._window.context).close(deadline_s)
