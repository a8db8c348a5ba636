"""What the journal keeps, replays and reports as lost."""

from devexplorer.core.files.records import NewWorkspace, OpenWorkspace, SaveWorkspace
from devexplorer.core.records import (
    AddVirtual,
    Answer,
    Backward,
    BuildModel,
    Command,
    Forward,
    Move,
)
from devexplorer.core.session.journal import Journal

BUILD = BuildModel(recipe="mlp", name="mlp", seed=3)


def move(device: str, *targets: str, dtype: str | None = None, request: int = 0) -> Move:
    return Move(targets=targets or ("mlp",), device=device, dtype=dtype, request=request)


def told(title: str, code: str = "pass") -> Answer:
    return Answer(title=title, words=f"{title}.", code=code, time_unix_s=7.0)


def replayed(journal: Journal) -> list[Command]:
    return [entry.command for entry in journal.replay()]


def titles(journal: Journal) -> list[str]:
    return [action.title for action in journal.actions]


OPENS = OpenWorkspace(path="w.devexplorer", stamp="1", replace=True, code=("net",))


def test_a_workspace_that_was_saved_is_where_a_replay_begins() -> None:
    journal = Journal()
    journal.add(AddVirtual(spec="T4"), answer=told("added"))
    journal.add(BUILD, "mlp", answer=told("built"))
    journal.add(Backward(target="mlp"), effects=["gradients of a backward pass"])
    journal.add(SaveWorkspace(path="w.devexplorer"), again=OPENS)
    journal.add(move("vgpu:0"))
    assert replayed(journal) == [AddVirtual(spec="T4"), OPENS, move("vgpu:0")]
    assert journal.lost() == [], "the file has the gradients too"
    journal.rebuilt()
    assert replayed(journal) == [AddVirtual(spec="T4"), OPENS, move("vgpu:0")]
    assert titles(journal) == ["added", "built"], "the session's script still begins at the beginning"


def test_undoing_what_a_file_has_makes_it_no_beginning() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp")
    journal.add(move("vgpu:0", request=2))
    journal.add(SaveWorkspace(path="w.devexplorer"), again=OPENS)
    journal.take_back(2)
    assert replayed(journal) == [BUILD]


def test_a_workspace_that_was_opened_is_where_a_replay_begins_until_that_is_undone() -> None:
    journal = Journal()
    opened = OpenWorkspace(path="w.devexplorer", stamp="1", replace=True, request=3)
    journal.add(BUILD, "mlp")
    journal.add(opened, again=opened)
    journal.take_back(3)
    assert replayed(journal) == [BUILD]
    journal.add(opened, again=opened)
    assert replayed(journal) == [opened]


def test_a_new_workspace_is_where_a_replay_begins_until_that_is_undone() -> None:
    journal, new = Journal(), NewWorkspace(request=4)
    journal.add(AddVirtual(spec="T4"), answer=told("added"))
    journal.add(OPENS, again=OPENS)
    journal.add(Forward(target="net", output="y"), "y", answer=told("ran"))
    journal.add(new, again=NewWorkspace())
    journal.take_back(4)
    assert replayed(journal) == [AddVirtual(spec="T4"), OPENS]
    assert titles(journal) == ["added", "ran"]
    journal.add(new, again=NewWorkspace())
    journal.add(BUILD, "mlp")
    assert replayed(journal) == [AddVirtual(spec="T4"), new, BUILD]
    assert journal.lost() == [], "what was removed is not missed"
    assert journal.commands == (AddVirtual(spec="T4"), BUILD), "what a script repeats begins there too"
    assert titles(journal) == ["added"], "nor does a script make what was replaced"
