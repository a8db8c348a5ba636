"""A session saved as a script is opened again from the commands in its last line."""

from __future__ import annotations

from pathlib import Path

import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.files.kinds import MODEL, SCRIPT, recognise
from devexplorer.core.files.records import OpenWorkspace, RunModelCode, Save
from devexplorer.core.files.script import MARK, commands_of, script, with_commands
from devexplorer.core.records import AddVirtual, Answer, BuildModel, Check, Command, Forward, Move, SetThreads, Steps
from devexplorer.core.session.journal import Journal, Surroundings

SESSION: tuple[Command, ...] = (
    SetThreads(threads=2),
    BuildModel(recipe="mlp", name="mlp"),
    Steps(commands=(Move(targets=("mlp",), device="vgpu:0"), Forward(target="mlp", output="y"))),
)


def saved(path: Path, *commands: Command, virtual: str | None = None) -> Path:
    around = Surroundings(virtual_spec=virtual)
    path.write_text(with_commands(script((), around), commands, around))
    return path


def test_what_was_written_comes_back_and_the_file_is_known_by_its_beginning(tmp_path: Path) -> None:
    path = saved(tmp_path / "session.py", *SESSION, virtual="T4")
    assert commands_of(path) == ((AddVirtual(spec="T4"), *SESSION), 0)
    assert recognise(path).kind == SCRIPT
    compile(path.read_text(), "session.py", "exec")
    (tmp_path / "net.py").write_text('"""A net."""\n')
    assert recognise(tmp_path / "net.py").kind == MODEL


def test_the_journal_has_what_changed_the_workspace() -> None:
    journal = Journal()
    told = Answer(title="t", words="w", code="pass")
    journal.add(BuildModel(recipe="mlp"), "mlp-2")
    journal.add(Check(target="mlp-2", device="cpu"), answer=told)
    journal.add(Save(targets=(), path="a.safetensors"), answer=told)
    journal.add(Forward(target="mlp-2", output="y"), "y")
    assert journal.commands == (BuildModel(recipe="mlp", name="mlp-2"), Forward(target="mlp-2", output="y"))
    journal.add(OpenWorkspace(path="w.devexplorer"))
    assert journal.commands == (), "what was in the file cannot be repeated"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "nothing that can be repeated"),
        ("\n", "nothing that can be repeated"),
        (f"{MARK}[", "is damaged"),
        (f'{MARK}[{{"type":"Unknown"}}]', "of a newer version, or of features that are not here"),
        (f'{MARK}[{{"type":"Steps","commands":[{{"type":"Unknown"}}]}}]', "or of features that are not here"),
        (f'{MARK}[{{"type":"Move","targets":3,"device":"cpu"}}]', "is damaged"),
        (f'{MARK}[{{"type":"Steps","commands":3}}]', "is damaged"),
        (MARK + "[" * 100_000, "is damaged"),
    ],
)
def test_what_cannot_be_repeated_gets_one_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "session.py"
    path.write_text(f"import torch\n{text}")
    with pytest.raises(BadInput, match=reason):
        commands_of(path)


def test_commands_of_features_that_are_not_here_are_counted(tmp_path: Path) -> None:
    path = saved(tmp_path / "session.py", *SESSION)
    text = path.read_text().replace(f"{MARK}[", f'{MARK}[{{"type":"Paint","target":"mlp"}},')
    path.write_text(text)
    assert commands_of(path) == (SESSION, 1)


@pytest.mark.parametrize(
    "command",
    [
        Save(targets=(), path="/somewhere", overwrite=True),
        OpenWorkspace(path="w.devexplorer", code=("net",)),
        RunModelCode(target="net"),
        Steps(commands=(Save(targets=(), path="/somewhere", overwrite=True),)),
        Steps(commands=(Steps(commands=(RunModelCode(target="net"),)),)),
    ],
)
def test_a_command_that_is_no_part_of_a_session_is_refused(tmp_path: Path, command: Command) -> None:
    with pytest.raises(BadInput, match="it has a command that is no part of a session"):
        commands_of(saved(tmp_path / "session.py", command))
