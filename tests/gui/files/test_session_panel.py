"""The session as Python: only differences are written; the code of the selected action is shown."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from devexplorer.core.files.script import script
from devexplorer.core.session.journal import Action, Surroundings
from devexplorer.core.session.state import State
from devexplorer.gui.files.session_code import SessionPanel


class Done:
    """A session of which this was done."""

    def __init__(self) -> None:
        self.actions: tuple[Action, ...] = ()

    def listener(self, _feature: str) -> Done:
        return self

    def script(self) -> str:
        return script(self.actions, Surroundings())


def action(number: int, code: str = "") -> Action:
    return Action(f"x{number} is on cpu", "It was created.", code or f"x{number} = torch.zeros({number})", 1e9 + number)


def test_the_text_is_always_the_whole_script(qtbot: QtBot) -> None:
    done = Done()
    panel = SessionPanel(State())
    qtbot.addWidget(panel)
    panel.set_source(done)
    panel.show()
    assert panel.text.toPlainText() == ""
    one, two, three = action(1), action(2), action(3, "import math\nx3 = torch.tensor(math.pi)\n\nprint(x3)")
    for actions in (
        (one,),
        (one, two),
        (one, two, three),
        (one, three),
        (three,),
        (),
        (two, one),
        (two, one, action(4, "not python (")),
    ):
        done.actions = actions
        panel.refresh()
        assert panel.text.toPlainText() == (done.script() if actions else "")
        assert [row.cells[1].text for row in panel.table.rows] == [one.title for one in actions]
    assert panel.words.text() == "3 actions. Undone actions are left out."


def test_the_code_of_the_chosen_action_comes_into_sight(qtbot: QtBot) -> None:
    done = Done()
    done.actions = tuple(action(number) for number in range(60))
    panel = SessionPanel(State())
    qtbot.addWidget(panel)
    panel.resize(900, 240)
    panel.set_source(done)
    panel.show()
    panel.table.select_key(30)
    first = panel.text.firstVisibleBlock().text()
    assert first == "# x30 is on cpu"


def test_a_hidden_page_waits(qtbot: QtBot) -> None:
    done = Done()
    panel = SessionPanel(State())
    qtbot.addWidget(panel)
    panel.set_source(done)
    panel.hide()
    done.actions = (action(1),)
    panel.refresh()
    assert not panel.table.rows
    panel.show()
    assert len(panel.table.rows) == 1
