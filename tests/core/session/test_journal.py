"""What the journal keeps, replays and reports as lost."""

from devexplorer.core.experiments.records import Ask, Replicate
from devexplorer.core.memory.records import ReleaseCache
from devexplorer.core.parameters import records as lab
from devexplorer.core.records import (
    Answer,
    Backward,
    BuildModel,
    Combine,
    Command,
    Forward,
    MatmulSpec,
    Move,
    MoveOptimizer,
    NewTensor,
    Remove,
    StartBenchmark,
    Steps,
    Undo,
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


def test_commands_come_back_in_order_with_the_names_that_were_given() -> None:
    journal = Journal()
    journal.add(BuildModel(request=9, recipe="mlp"), "mlp-2")
    journal.add(NewTensor(request=10, fill="rand", shape=(2,), seed=5), "x")
    assert replayed(journal) == [
        BuildModel(request=9, recipe="mlp", name="mlp-2"),
        NewTensor(request=10, name="x", fill="rand", shape=(2,), seed=5),
    ]


def test_a_model_moved_back_and_forth_is_moved_once() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp")
    for device in ("vgpu:0", "cpu", "vgpu:1"):
        journal.add(move(device), answer=told(device))
    assert titles(journal) == ["vgpu:0", "cpu", "vgpu:1"]
    assert replayed(journal) == [BUILD, move("vgpu:1")]
    assert titles(journal) == ["vgpu:1"], "as the new engine has it"


def test_a_cast_is_not_folded_into_the_next_move() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp")
    journal.add(move("vgpu:0", dtype="float16"))
    journal.add(move("vgpu:1"))
    assert replayed(journal) == [BUILD, move("vgpu:0", dtype="float16"), move("vgpu:1")]


def test_what_was_undone_is_neither_replayed_nor_shown_and_comes_back_with_redo() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp", answer=told("built"))
    journal.add(move("vgpu:0", request=2), answer=told("moved"))
    journal.add(Undo(request=3))
    journal.take_back(2)
    assert (replayed(journal), titles(journal)) == ([BUILD], ["built"])
    journal.add(move("vgpu:0", request=4), answer=told("moved"))  # what the session does when the engine says `Redid`
    journal.take_back(2)
    assert titles(journal) == ["built", "moved"], "it has another number now"
    journal.take_back(4)
    assert titles(journal) == ["built"]


def test_questions_are_shown_and_not_replayed_and_commands_without_python_are_nothing() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp", answer=told("built"))
    journal.add(Ask(target="mlp", question="type"), answer=told("asked"))
    journal.add(StartBenchmark(spec=MatmulSpec(device="cpu", m=1, n=1, k=1)))
    journal.add(ReleaseCache(device="cpu"), answer=told("released"))
    assert titles(journal) == ["built", "asked"]
    assert replayed(journal) == [BUILD]


def test_everything_that_can_be_repeated_is() -> None:
    commands: list[Command] = [
        lab.Initialise(target="m", rule="ones"),
        lab.Tie(first="m:a", second="m:b"),
        lab.Untie(target="m:b"),
        lab.SetRequiresGrad(targets=("m",), on=False),
        lab.SetTraining(target="m", on=False),
        lab.MakeOptimizer(target="m"),
        MoveOptimizer(target="m"),
        Replicate(target="m", devices=("cpu",)),
    ]
    journal = Journal()
    for command in commands:
        journal.add(command)
    journal.add(lab.TrainStep(target="m"), effects=("a step of the optimizer",))
    assert replayed(journal) == commands
    assert journal.lost() == ["m, a step of the optimizer: it cannot be repeated"]


def test_what_cannot_be_made_again_is_named_until_it_is_removed_or_undone() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp")
    journal.add(Forward(request=2, target="mlp", output="y"), "y")
    journal.add(Backward(request=3, target="mlp:0"), effects=("gradients of a backward pass",))
    assert [line.partition(":")[0] for line in journal.lost()] == ["y", "mlp, gradients of a backward pass"]
    journal.take_back(3)
    assert journal.lost() == ["y: the result of a forward pass"]
    journal.add(Remove(request=4, names=("mlp", "y")))
    assert journal.lost() == []
    journal.take_back(4)
    assert journal.lost() == ["y: the result of a forward pass"], "the removal was undone"


def test_gradients_that_were_cleared_are_not_lost_and_clearing_is_not_repeated() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp")
    journal.add(Backward(target="mlp"), effects=("gradients of a backward pass",))
    journal.add(lab.ClearGradients(target="mlp:0"), answer=told("cleared"))
    assert journal.lost() == ["mlp, gradients of a backward pass: it cannot be repeated"]
    journal.add(lab.ClearGradients(target="mlp"), answer=told("cleared"))
    assert journal.lost() == []
    assert replayed(journal) == [BUILD]


def test_after_a_rebuild_what_was_lost_is_no_part_of_the_session() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp", answer=told("built"))
    journal.add(Forward(target="mlp", output="y"), "y", answer=told("ran"))
    journal.replay()
    journal.rebuilt()
    assert journal.lost() == []
    assert titles(journal) == ["built"]


def test_what_failed_once_is_not_tried_again() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp")
    journal.add(Combine(left="a", right="b"), "c")
    journal.forget(journal.replay()[1:])
    assert replayed(journal) == [BUILD]


def test_what_was_asked_about_something_that_was_undone_is_no_part_of_the_session() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp", answer=told("built"))
    journal.add(Ask(target="mlp", question="type"), answer=told("asked"))
    journal.add(BuildModel(recipe="mlp", request=2), "net", answer=told("opened"))
    journal.add(Forward(target="net"), answer=told("ran"))
    journal.add(lab.Describe(target="net:0.weight"), answer=told("saved"))
    journal.take_back(2)
    assert titles(journal) == ["built", "asked"], "net(x) without net would end the script"


def test_of_several_steps_those_are_repeated_that_can_be() -> None:
    journal = Journal()
    copy, add = Move(targets=("b",), device="vgpu:0", copy=True), Combine(left="a", right="b")
    journal.add(Steps(commands=(copy, add), request=2), "result-2", answer=told("added"))
    frozen, run = lab.SetTraining(target="net", on=False), Forward(target="net")
    journal.add(Steps(commands=(frozen, run), request=3), effects=("running statistics changed",), answer=told("ran"))
    named = Combine(left="a", right="b", name="result-2")
    assert [entry.repeated for entry in journal.replay()] == [
        Steps(commands=(copy, named), request=2),
        Steps(commands=(frozen,), request=3),
    ]
    assert journal.lost() == ["net, running statistics changed: it cannot be repeated"]
    journal.take_back(3)
    assert titles(journal) == ["added"]
