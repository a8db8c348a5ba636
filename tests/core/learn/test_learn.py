"""The exercises, and how a course detects that a step is done."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from fakes.look_records import CPU, ENGINE, state_with

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.learn.course import EXERCISES
from devexplorer.core.learn.exercise import Course, Exercise, Step, built, did, refused, there
from devexplorer.core.parameters.records import Tie
from devexplorer.core.records import (
    Answer,
    BuildModel,
    Command,
    DeviceInfo,
    EngineReady,
    JobEnded,
    JobStarted,
    Move,
    Moved,
    MoveReport,
    NewTensor,
    ObjectChanged,
    ObjectSnapshot,
    Row,
    SetThreads,
    Undo,
)
from devexplorer.core.session.state import COMMANDS, State

BEHAVIOURS = {
    1: "this-machine", 2: "device-table", 3: "visible-devices", 4: "absent-device", 5: "new-tensor", 6: "move-tensor",
    7: "already-there",
    8: "move-model", 9: "requires-grad", 10: "wrong-device", 11: "doctor", 12: "numpy", 13: "dtype", 14: "several",
    15: "add-across",
    16: "scaling", 17: "replicate", 18: "blocks", 19: "read-parameters", 20: "initialise", 21: "tied", 22: "lazy",
    23: "custom-layers",
    24: "save-load", 25: "vgg", 26: "split-by-hand", 27: "timing", 28: "crossover",
    29: "type", 30: "threads", 31: "data-in-forward", 32: "module-list",
    33: "names", 34: "whole-model",
}  # fmt: skip
"""By the numbers of tests/scenarios."""

A_BUILD = did(BuildModel)
A_MOVE = did(Move)
BUILD, MOVE = BuildModel(recipe="mlp"), Move(targets=("mlp",), device="cuda:0")


@pytest.fixture
def state() -> State:
    return state_with(CPU)


class Engine:
    """Ends commands, as the engine's events do."""

    def __init__(self, state: State) -> None:
        self.state, self.request = state, 0

    def end(
        self, *commands: Command, ok: bool = True, report: MoveReport | None = None, subject: str | None = None
    ) -> None:
        for command in commands:
            self.request += 1
            self.state.apply(JobStarted(request=self.request, title="", time_unix_s=0.0, command=command))
            if report is not None:
                self.state.apply(Moved(request=self.request, report=report, time_unix_s=0.0))
            self.state.apply(Answer(request=self.request, title="done", words="", subject=subject))
            self.state.apply(JobEnded(request=self.request, ok=ok, time_unix_s=0.0))

    def show(self, name: str, *rows: Row, source: str | None = None, kind: str = "model") -> None:
        snapshot = ObjectSnapshot(
            name=name,
            kind=kind,
            type="",
            rows=rows or (row("", "module"),),
            bytes_by_device={},
            tensors_by_device={},
            source=source,
        )
        self.state.apply(ObjectChanged(snapshot=snapshot))


@pytest.fixture
def engine(state: State) -> Engine:
    return Engine(state)


def row(path: str, kind: str = "parameter", **more: object) -> Row:
    return Row(
        path=path, name=path.rpartition(".")[2], kind=kind, type="", depth=path.count(".") + 1 if path else 0, **more
    )  # type: ignore[arg-type]


def report(**more: object) -> MoveReport:
    given: dict[str, object] = {
        "objects": ("mlp",), "source": ("cpu",), "destination": "cuda:0", "dtype": None, "parameters": 4, "buffers": 0,
        "gradients": 0,
        "tensors": 0, "bytes": 0, "seconds": 0.0, "wall_seconds": 0.0, "gb_per_s": None, "simulated": False,
    }  # fmt: skip
    return MoveReport(**given | more)  # type: ignore[arg-type]


def exercise(*steps: Step) -> Exercise:
    return Exercise("one", "One", "Models", "Why.", steps)


def course(state: State, *checks: object) -> Course:
    return Course(exercise(*(Step("do", "so", check) for check in checks)), state)  # type: ignore[arg-type]


def begun(state: State, exercise_id: str, steps: int = 0) -> Course:
    """One of the real exercises, with its first steps done."""
    result = Course(next(one for one in EXERCISES if one.id == exercise_id), state)
    result.at = steps
    return result


# --- the list


@pytest.fixture
def all_exercises() -> None:
    """Those that are about features as well."""
    for feature in ("doctor", "experiments", "files", "scaling", "split"):
        pytest.importorskip(f"devexplorer.core.learn.exercises.{feature}")


@pytest.mark.usefixtures("all_exercises")
def test_each_behaviour_has_an_exercise_of_its_own() -> None:
    ids = [one.id for one in EXERCISES]
    assert len(set(ids)) == len(ids) == 34
    assert sorted(BEHAVIOURS.values()) == sorted(ids)


def test_exercises_of_a_topic_are_grouped() -> None:
    topics = [one.topic for one in EXERCISES]
    changes = sum(here != after for here, after in itertools.pairwise(topics))
    assert changes == len(set(topics)) - 1


@pytest.mark.usefixtures("all_exercises")
def test_the_documentation_lists_each_and_says_which_need_a_second_device() -> None:
    lines = (Path(__file__).parents[3] / "docs" / "learn.md").read_text(encoding="utf-8").splitlines()
    listed = [
        line.split("|")[1].strip()
        for line in lines
        if line.startswith("| ") and not line.startswith(("| exercise", "| **"))
    ]
    assert listed == [f"{one.title}{' ²' if one.two_devices else ''}" for one in EXERCISES]


def test_the_words_of_every_exercise_are_whole() -> None:
    for one in EXERCISES:
        assert one.why.endswith((".", "?")), one.id
        assert one.steps
        for step in one.steps:
            assert step.text[0].isupper() or step.text[0] == "…"
            assert step.how
            assert step.text.endswith("?") == (step.answers is not None)


def test_nothing_is_done_yet_in_an_empty_window(state: State) -> None:
    for one in EXERCISES:
        begun = Course(one, state)
        assert not begun.look()
        assert not begun.answer("nobody would say this")
        assert begun.at == 0


# --- steps in their order


def test_steps_are_done_one_after_the_other(state: State, engine: Engine) -> None:
    begun = course(state, A_BUILD, A_MOVE)
    engine.end(MOVE)
    assert not begun.look()
    engine.end(BUILD)
    assert begun.look()
    assert (begun.at, begun.finished) == (1, False)
    engine.end(MOVE)
    assert begun.look()
    assert begun.finished
    assert begun.step is None
    assert not begun.look()


def test_commands_that_end_together_do_a_step_each(state: State, engine: Engine) -> None:
    begun = course(state, A_BUILD, A_MOVE, did(Undo))
    engine.end(BUILD, MOVE, Undo())
    assert begun.look()
    assert begun.finished


def test_what_ended_before_a_step_began_does_not_count(state: State, engine: Engine) -> None:
    engine.end(BUILD, MOVE)
    begun = course(state, A_BUILD, A_MOVE)
    assert not begun.look()
    engine.end(MOVE, BUILD)
    assert begun.look()
    assert begun.at == 1, "the move came before the model"


def test_one_command_does_one_step(state: State, engine: Engine) -> None:
    begun = course(state, A_BUILD, A_BUILD)
    engine.end(BUILD)
    begun.look()
    assert begun.at == 1
    begun.look()
    assert begun.at == 1


def test_a_refusal_is_no_success_and_the_other_way_round(state: State, engine: Engine) -> None:
    begun = course(state, A_MOVE, refused(Move))
    engine.end(MOVE, ok=False)
    assert not begun.look()
    engine.end(MOVE)
    engine.end(MOVE)
    begun.look()
    assert begun.at == 1
    engine.end(MOVE, ok=False)
    assert begun.look()


def test_more_commands_than_are_remembered_end_between_two_looks(state: State, engine: Engine) -> None:
    begun = course(state, A_BUILD, A_MOVE)
    engine.end(BUILD, *[Undo()] * COMMANDS)
    assert not begun.look(), "the model is forgotten"
    engine.end(BUILD, *[Undo()] * (COMMANDS - 2), MOVE)
    assert begun.look()
    assert begun.finished
    assert len(begun.evidence.done) == 0


def test_what_a_span_holds_is_what_ended_in_it(state: State, engine: Engine) -> None:
    engine.end(BUILD)
    begun = course(state, lambda evidence: len(evidence.done) == 2)
    assert begun.evidence.newest is None
    engine.end(MOVE)
    assert not begun.look()
    engine.end(Undo(), BUILD)
    assert begun.look()
    assert [type(one.command) for one in begun.evidence.done] == []
    assert begun.evidence.begun_at == 3, "the model is left for the next step"


def test_each_command_is_looked_at_once(state: State, engine: Engine) -> None:
    asked: list[int] = []
    begun = course(state, lambda evidence: asked.append(evidence.until))
    engine.end(*[Undo()] * 50)
    begun.look()
    assert asked == list(range(51))
    engine.end(Undo())
    begun.look()
    assert asked[51:] == [50, 51]


def test_going_on_after_something_else_leaves_out_what_happened_meanwhile(state: State, engine: Engine) -> None:
    begun = course(state, A_BUILD)
    engine.end(BUILD)
    begun.resume()
    assert not begun.look()
    engine.end(BUILD)
    assert begun.look()


def test_an_exercise_is_done_again_from_its_beginning(state: State, engine: Engine) -> None:
    engine.end(BUILD)
    first = course(state, A_BUILD)
    engine.end(BUILD)
    assert first.look()
    again = Course(first.exercise, state)
    assert not again.look()
    engine.end(BUILD)
    assert again.look()
    assert again.finished


def test_a_recording_on_show_is_nothing_that_was_done_here(state: State, engine: Engine) -> None:
    begun = course(state, A_BUILD)
    state.recording = "a.devrec"
    engine.end(BUILD)
    assert not begun.look()
    question = Course(exercise(Step("how many?", "count", answers=lambda evidence: {"1"})), state)
    assert not question.answer("1")


# --- the workspace


def test_a_model_that_is_there_need_not_be_built(state: State, engine: Engine) -> None:
    engine.show("net", source="mlp")
    begun = course(state, built("mlp"), A_MOVE)
    assert begun.look()
    engine.end(MOVE)
    assert begun.look()


def test_a_model_that_comes_back_by_redo_counts(state: State, engine: Engine) -> None:
    begun = course(state, built("mlp"))
    assert not begun.look()
    engine.show("net", source="mlp")
    assert begun.look()


def test_objects_are_known_as_they_are_now_only(state: State, engine: Engine) -> None:
    begun = course(state, there(lambda one: one.name == "net"), A_MOVE)
    begun.look()
    engine.end(MOVE)
    engine.show("net")
    engine.end(Undo())
    assert begun.look()
    assert begun.at == 1, "nobody knows whether it was there before the move"


# --- questions


@pytest.mark.parametrize("said", ["2", "two", " Two devices. ", "2  devices", "TWO"])
def test_a_number_is_right_as_people_write_it(state: State, said: str) -> None:
    give(state, "cuda:0", 15 << 30)
    assert begun(state, "this-machine").answer(said)


@pytest.mark.parametrize("said", ["15", "15.0", "15 GiB", "15,0", "15.0gib", "15.00 GiB"])
def test_a_size_is_right_as_people_write_it(state: State, said: str) -> None:
    give(state, "cuda:0", 15 << 30)
    assert begun(state, "device-table").answer(said)


@pytest.mark.parametrize("said", ["", " ", "3", "1", "15 MiB", "many"])
def test_a_wrong_answer_leaves_the_question(state: State, said: str) -> None:
    give(state, "cuda:0", 15 << 30)
    for exercise_id in ("this-machine", "device-table"):
        asked = begun(state, exercise_id)
        assert not asked.answer(said)
        assert not asked.finished


def test_a_question_is_not_answered_by_commands_and_no_step_by_words(state: State, engine: Engine) -> None:
    asked = Course(
        exercise(
            Step("how many?", "count", lambda evidence: True, answers=lambda evidence: {"1"}), Step("do", "so", A_BUILD)
        ),
        state,
    )
    engine.end(BUILD)
    assert not asked.look()
    assert asked.answer("1")
    assert not asked.finished, "the model was there before the answer"
    assert not asked.answer("1")
    engine.end(BUILD)
    assert asked.look()


def test_without_an_engine_nothing_is_right(state: State) -> None:
    nothing = State()
    for exercise_id, step in (("device-table", 0), ("threads", 1)):
        assert not begun(nothing, exercise_id, step).answer("0")


def give(state: State, device: str, total_bytes: int) -> None:
    """One more card."""
    card = DeviceInfo(id=device, kind="cuda", name="card", usable=True, memory_total_bytes=total_bytes)
    state.set_catalog(Catalog((*(one.info for one in state.devices.values() if one.info.id != device), card), ()))


# --- steps that look further


def visible(state: State, value: str | None, *cards: str) -> None:
    ready: EngineReady = msgspec.structs.replace(ENGINE, cuda_visible_devices=value)
    state.apply(ready)
    found = [DeviceInfo(id=card, kind="cuda", name="card", usable=True) for card in cards]
    state.set_catalog(Catalog((CPU, *found), ()))


@pytest.mark.parametrize("inherited", [None, "0,1"])
def test_visible_devices_are_chosen_and_given_back_whatever_was_inherited(state: State, inherited: str | None) -> None:
    visible(state, inherited, "cuda:0", "cuda:1")
    steps = begun(state, "visible-devices")
    assert not steps.look()
    visible(state, "1,0", "cuda:0", "cuda:1")
    assert not steps.look(), "two cards still"
    visible(state, "1", "cuda:0")
    assert steps.look()
    assert steps.at == 1
    assert not steps.look()
    visible(state, inherited, "cuda:0", "cuda:1")
    assert steps.look()
    assert steps.finished


@pytest.mark.parametrize("tied_path", ["0.weight", "1.weight"])
def test_tied_parameters_are_still_one_after_a_move(state: State, engine: Engine, tied_path: str) -> None:
    steps = begun(state, "tied", 1)
    other = "1.weight" if tied_path == "0.weight" else "0.weight"
    engine.show("net", row("", "module"), row(other), row(tied_path, tied_to=other))
    engine.end(Tie(first="net:0.weight", second="net:1.weight"))
    assert steps.look()
    steps.at = 3
    engine.end(Move(targets=("mlp",), device="cuda:0"), report=report())
    assert not steps.look(), "another model"
    engine.end(Move(targets=("net",), device="cuda:0"), report=report(objects=("net",)))
    assert steps.look()


def test_layers_are_on_two_devices_only_when_they_are(state: State, engine: Engine) -> None:
    steps = begun(state, "split-by-hand", 1)
    engine.show("mlp", row("", "module"), row("0", "module", devices=("cuda:0",)), row("2", "module", devices=("cpu",)))
    engine.end(Move(targets=("mlp:0",), device="cuda:0"), report=report())
    assert steps.look()
    assert steps.at == 2, "layer 2 has not been moved"
    engine.show(
        "mlp", row("", "module"), row("0", "module", devices=("cuda:0",)), row("2", "module", devices=("cuda:0",))
    )
    engine.end(Move(targets=("mlp:2",), device="cuda:0"), report=report())
    assert not steps.look(), "both on one"
    engine.show(
        "mlp", row("", "module"), row("0", "module", devices=("cuda:0",)), row("2", "module", devices=("cuda:1",))
    )
    engine.end(Move(targets=("mlp:2",), device="cuda:1"), report=report())
    assert steps.look()


def test_a_tensor_that_moved_and_is_a_leaf_still_is_not_the_one(state: State, engine: Engine) -> None:
    steps = begun(state, "requires-grad", 1)
    engine.show("x", row("", "tensor", is_leaf=True), kind="tensor")
    engine.end(Move(targets=("x",), device="cuda:0"), report=report(tensors=1))
    assert not steps.look()
    engine.show("x", row("", "tensor", is_leaf=False, grad_fn="ToCopyBackward0"), kind="tensor")
    engine.end(Move(targets=("x",), device="cuda:0"), report=report(tensors=1))
    assert steps.look()


def test_two_tensors_on_two_devices_have_one_shape(state: State, engine: Engine) -> None:
    steps = begun(state, "add-across", 1)
    engine.show("a", row("", "tensor", shape=(2, 3), devices=("cpu",)), kind="tensor")
    engine.show("b", row("", "tensor", shape=(3, 2), devices=("cuda:0",)), kind="tensor")
    engine.show("c", row("", "tensor", shape=(2, 3), devices=("cpu",)), kind="tensor")
    assert not steps.look()
    engine.show("d", row("", "tensor", shape=(2, 3), devices=("cuda:0",)), kind="tensor")
    assert steps.look()


def test_two_tensors_are_two(state: State, engine: Engine) -> None:
    steps = begun(state, "several")
    engine.end(NewTensor())
    assert not steps.look()
    engine.end(NewTensor(), ok=False)
    engine.end(SetThreads(threads=1))
    assert not steps.look()
    engine.end(NewTensor())
    assert steps.look()


STEPS = [(one, numbered) for one in EXERCISES for numbered in enumerate(one.steps)]


def test_no_step_goes_through_the_rows_of_large_models(state: State, engine: Engine) -> None:
    """With 60,000 rows this would slow down every command."""

    class Rows(tuple):  # type: ignore[type-arg]
        def __iter__(self) -> object:  # type: ignore[override]
            raise AssertionError("went through all rows")

    engine.show("large", row("", "module", devices=("cpu",)), source="gpt2")
    state.objects["large"] = msgspec.structs.replace(
        state.objects["large"], rows=Rows((row("", "module", devices=("cpu",)),))
    )
    for command in (BUILD, MOVE, Undo(), NewTensor(), Tie(first="a:0", second="a:1")):
        engine.end(command, report=report() if isinstance(command, Move) else None)
        for one, (at, step) in STEPS:
            if step.answers is None:
                steps = Course(one, state)
                steps.at, steps.evidence.begun_at = at, state.done_count - 1
                steps.look()
