"""Objects sent from one machine to another: every bit, or nothing and one line that says why."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fakes.disk import files_in
from fakes.engine import EngineHere

from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.files.records import Save
from devexplorer.core.files.script import script
from devexplorer.core.machines.records import Chunk, ForgetCopy, Question, ReadFile, Result
from devexplorer.core.machines.window.file_copying import PIECE_BYTES, Copying, End, FileCopying, HereFiles
from devexplorer.core.records import Answer, BuildModel, Command, JobEnded, NewTensor, UndoState
from devexplorer.core.session.journal import Surroundings
from devexplorer.core.session.session import Session


class Place:
    """A machine: a session with a real engine, and its files."""

    def __init__(self, name: str, folder: Path) -> None:
        self.engines: list[EngineHere] = []
        self.session = Session(make_engine=self._engine, nvml=Nvml())
        self.session._engine.start()
        self.folder = folder / name
        self.files = HereFiles(self.session, self.folder)
        self.end = End(name, self.files.ask)
        self.ended: list[JobEnded] = []
        self.answers: list[Answer] = []
        self.undo: str | None = None

    def _engine(self, put: Callable, spec: str | None, visible: str | None) -> EngineHere:  # type: ignore[type-arg]
        self.engines.append(EngineHere(put, spec, visible))
        return self.engines[-1]

    def beat(self) -> None:
        for event in self.session.drain().events:
            if isinstance(event, JobEnded):
                self.ended.append(event)
            elif isinstance(event, Answer):
                self.answers.append(event)
            elif isinstance(event, UndoState):
                self.undo = event.title
        self.files.beat()

    @property
    def left(self) -> list[Path]:
        return files_in(self.folder)

    def tensors_named(self, name: str) -> bytes:
        return self.engines[-1].engine.workspace.tensor_named(name).numpy().tobytes()

    def tensors(self) -> dict[str, bytes]:
        workspace = self.engines[-1].engine.workspace
        return {name: workspace.tensor_named(name).numpy().tobytes() for name in workspace.names}

    def close(self) -> None:
        assert self.files.close()
        self.session.close()


class Both:
    def __init__(self, folder: Path) -> None:
        self.here, self.there = Place("here", folder), Place("there", folder)
        self.loads: list[Command] = []

    def copying(self, *names: str, read: Callable[[Chunk], Chunk] = lambda chunk: chunk) -> Copying:
        def ask(
            question: Question, then: Callable[[Result], None], failed: Callable[[str], None] = lambda problem: None
        ) -> None:
            if isinstance(question, ReadFile):
                self.here.files.ask(question, lambda result: then(read(result)), failed)  # type: ignore[arg-type]
            else:
                self.here.files.ask(question, then, failed)

        return Copying(names, End("here", ask), self.there.end, self._load, lambda: None)

    def _load(self, command: Command) -> int:
        self.loads.append(command)
        return self.there.session.send(command)

    def do(self, *commands: Command) -> None:
        due = len(self.here.ended) + len(commands)
        for command in commands:
            self.here.session.send(command)
        self.until(lambda: len(self.here.ended) == due)

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end, "it did not happen"
            self.here.beat()
            self.there.beat()
            time.sleep(0.001)


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    made = Both(tmp_path)
    yield made
    for place in (made.here, made.there):
        place.close()


def test_every_bit_arrives_and_the_files_go(both: Both) -> None:
    both.do(
        NewTensor(name="x", fill="randn", shape=(300, 1000), seed=3), NewTensor(name="y", fill="arange", shape=(7,))
    )
    copying = both.copying("x", "y")
    copying.start()
    assert copying.words == "2 objects: saving on here"
    both.until(lambda: copying.over)
    assert copying.stage == "sent", copying.words
    assert copying.size_bytes > 4 * PIECE_BYTES
    both.until(lambda: both.there.ended)
    assert both.there.tensors() == both.here.tensors()
    both.until(lambda: not both.here.left)


def test_a_model_is_there_again(both: Both) -> None:
    both.do(BuildModel(recipe="mlp", seed=5))
    copying = both.copying("mlp")
    copying.start()
    both.until(lambda: both.there.ended)
    model = both.there.engines[-1].engine.workspace.model("mlp").module
    original = both.here.engines[-1].engine.workspace.model("mlp").module
    assert all(bool((a == b).all()) for a, b in zip(model.parameters(), original.parameters(), strict=True))


def test_what_is_changed_on_the_way_is_not_kept(both: Both) -> None:
    def spoil(chunk: Chunk) -> Chunk:
        return msgspec.structs.replace(chunk, data=chunk.data[:-1] + b"\x55") if chunk.sha256 else chunk

    both.do(NewTensor(name="x", fill="randn", shape=(300, 1000)))
    copying = both.copying("x", read=spoil)
    copying.start()
    both.until(lambda: copying.over)
    assert copying.stage == "failed"
    assert "arrived damaged" in copying.words
    assert not both.loads
    both.until(lambda: not both.here.left and not both.there.left)


def test_what_comes_without_its_check_sum_is_not_kept(both: Both) -> None:
    both.do(NewTensor(name="x", fill="randn", shape=(300, 1000)))
    copying = both.copying("x", read=lambda chunk: msgspec.structs.replace(chunk, sha256=""))
    copying.start()
    both.until(lambda: copying.over)
    assert copying.stage == "failed"
    assert "without its check sum" in copying.words
    assert not both.loads
    both.until(lambda: not both.here.left and not both.there.left)


def test_a_size_that_changes_is_refused(both: Both) -> None:
    sizes = itertools.count(10**6)
    both.do(NewTensor(name="x", fill="randn", shape=(300, 1000)))
    copying = both.copying("x", read=lambda chunk: msgspec.structs.replace(chunk, size_bytes=next(sizes)))
    copying.start()
    both.until(lambda: copying.over)
    assert copying.words == "here sent something else than the file that it saved."


@pytest.mark.parametrize("stage", ["saving", "sending"])
def test_cancelling_leaves_nothing(both: Both, stage: str) -> None:
    both.do(NewTensor(name="x", fill="randn", shape=(300, 1000)))
    copying = both.copying("x")
    copying.start()
    both.until(lambda: copying.stage == stage)
    copying.cancel()
    assert copying.words == "x: not sent to there"
    both.until(lambda: not both.here.left and not both.there.left)
    assert not both.loads


def test_an_object_that_is_gone_is_one_line(both: Both) -> None:
    copying = both.copying("nothing")
    copying.start()
    both.until(lambda: copying.over)
    assert copying.stage == "failed"
    assert "nothing" in copying.words


def test_an_engine_that_dies_while_it_saves_is_one_line(both: Both) -> None:
    both.do(NewTensor(name="x", fill="randn", shape=(300, 1000)))
    both.here.engines[-1].send = lambda command: None  # type: ignore[method-assign]
    copying = both.copying("x")
    copying.start()
    both.until(lambda: both.here.files._work._saving)
    both.here.engines[-1].kill()
    both.until(lambda: copying.over)
    assert copying.words == "The engine ended before the objects were saved."


def test_people_are_told_the_machine_and_never_the_file_between(both: Both, tmp_path: Path) -> None:
    both.do(BuildModel(recipe="mlp", seed=5), NewTensor(name="x", fill="randn", shape=(3,)))
    for names in (("mlp",), ("x",), ("x",), ("mlp", "x")):
        due = len(both.there.ended) + 1
        copying = both.copying(*names)
        copying.start()
        both.until(lambda due=due: len(both.there.ended) == due)
    assert not [answer for answer in both.there.answers if "copies" in f"{answer}" or ".safetensors" in answer.words]
    assert [answer.title for answer in both.there.answers] == [
        "mlp was copied from here", "x was copied from here", "x2 was copied from here",
        "2 objects were copied from here",
    ]  # fmt: skip
    assert "It is called x2 here, because there was x already." in both.there.answers[2].words
    assert both.there.undo == "the copy of 2 objects from here"


def test_the_script_loads_what_the_user_saves_on_the_other_machine(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.do(BuildModel(recipe="mlp", seed=5), NewTensor(name="x", fill="randn", shape=(3,)))
    for name in ("mlp", "x"):
        due = len(both.there.ended) + 1
        both.copying(name).start()
        both.until(lambda due=due: len(both.there.ended) == due)
    text = script(both.there.session.actions, Surroundings())
    assert "# From here: save it there as mlp.safetensors and put the file beside this script" in text
    both.do(*(Save(targets=(name,), path=str(tmp_path / f"{name}.safetensors")) for name in ("mlp", "x")))
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {}
    exec(text, made)
    assert made["x"].numpy().tobytes() == both.here.tensors_named("x")
    original = both.here.engines[-1].engine.workspace.model("mlp").module
    assert all(bool((a == b).all()) for a, b in zip(made["mlp"].parameters(), original.parameters(), strict=True))


def test_a_file_keeps_its_name_and_what_is_no_copy_stays(both: Both, tmp_path: Path) -> None:
    file = tmp_path / "weights of mine.pt"
    file.write_bytes(bytes(range(256)) * 5000)
    arrived: list[Path] = []
    copying = FileCopying(
        str(file), file.name, both.here.end, both.there.end, lambda path: arrived.append(Path(path)), lambda: None
    )
    copying.start()
    assert copying.words == "weights of mine.pt: sending to there"
    both.until(lambda: copying.over)
    assert copying.words == "weights of mine.pt sent to there (1.22 MiB, verified)"
    assert arrived[0].name == file.name
    assert arrived[0].read_bytes() == file.read_bytes()
    said: list[object] = []
    for wrong in (str(file), f"{arrived[0].parent.parent}/../x"):
        both.there.files.ask(ForgetCopy(path=wrong), said.append, said.append)
    both.there.files.ask(ForgetCopy(path=str(arrived[0])), said.append, said.append)
    both.until(lambda: len(said) == 3)
    assert all(str(words).endswith("is no copy of the host's.") for words in said[:2])
    assert file.exists()
    assert not both.there.left


def test_a_file_that_does_not_fit_or_grows_is_refused_and_leaves_nothing(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.devrec"
    file.write_bytes(bytes(20 * PIECE_BYTES))

    def copying() -> FileCopying:
        made = FileCopying(str(file), file.name, both.here.end, both.there.end, pytest.fail, lambda: None)
        made.start()
        return made

    with monkeypatch.context() as little:
        little.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=PIECE_BYTES))
        first = copying()
        both.until(lambda: first.over)
    room = "it needs 5.00 MiB, and 256.00 KiB are free on that disk."
    assert first.words == f"There is no room for run.devrec: {room}"
    second = copying()
    both.until(lambda: second.size_bytes)
    with file.open("ab") as more:
        more.write(b"x")
    both.until(lambda: second.over)
    assert second.words == "run.devrec changed on here while it was being sent: wait until it is complete."
    both.until(lambda: not both.there.left)
