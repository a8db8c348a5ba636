"""What the journal replays and what it names as lost."""

from devexplorer.core.engine.journal import Journal
from devexplorer.core.records.messages import Backward, BuildModel, Combine, Forward, Move, NewTensor, Remove, Undo

BUILD = BuildModel(recipe="mlp", name="mlp", seed=3)


def move(device: str, *targets: str, dtype: str | None = None) -> Move:
    return Move(targets=targets or ("mlp",), device=device, dtype=dtype)


def test_commands_come_back_in_order_with_the_names_that_were_given() -> None:
    journal = Journal()
    journal.add(BuildModel(request=9, recipe="mlp"), "mlp-2")
    journal.add(NewTensor(request=10, fill="rand", shape=(2,), seed=5), "x")
    assert journal.replay() == [
        BuildModel(recipe="mlp", name="mlp-2"),
        NewTensor(name="x", fill="rand", shape=(2,), seed=5),
    ]


def test_a_model_moved_back_and_forth_is_moved_once() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp")
    for device in ("vgpu:0", "cpu", "vgpu:1"):
        journal.add(move(device))
    assert journal.replay() == [BUILD, move("vgpu:1")]


def test_undo_is_replayed_and_what_stands_before_it_is_not_shortened() -> None:
    journal = Journal()
    for command in (BUILD, move("vgpu:0"), move("vgpu:1"), Undo(), move("cpu"), move("vgpu:1")):
        journal.add(command, "mlp" if command is BUILD else None)
    assert journal.replay() == [BUILD, move("vgpu:0"), move("vgpu:1"), Undo(), move("vgpu:1")]


def test_what_was_left_out_of_a_replay_cannot_be_undone_later() -> None:
    journal = Journal()
    for command in (BUILD, move("vgpu:0"), move("vgpu:1")):
        journal.add(command, "mlp" if command is BUILD else None)
    assert journal.replay() == [BUILD, move("vgpu:1")]
    journal.add(Undo())
    assert journal.replay() == [BUILD, move("vgpu:1"), Undo()], "as the new engine's own stack has it"


def test_a_cast_is_not_folded_into_the_next_move() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp")
    journal.add(move("vgpu:0", dtype="float16"))
    journal.add(move("vgpu:1"))
    assert journal.replay() == [BUILD, move("vgpu:0", dtype="float16"), move("vgpu:1")]


def test_what_cannot_be_made_again_is_named_until_it_is_removed() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp")
    journal.add(Forward(target="mlp", output="y"), "y")
    journal.add(Backward(target="mlp:0"), effects=("gradients of a backward pass",))
    assert [line.partition(":")[0] for line in journal.lost()] == ["y", "mlp, gradients of a backward pass"]
    journal.add(Remove(names=("mlp", "y")))
    assert journal.lost() == []


def test_what_failed_once_is_not_tried_again() -> None:
    journal = Journal()
    journal.add(BUILD, "mlp")
    journal.add(Combine(left="a", right="b"), "c")
    journal.forget([Combine(request=99, left="a", right="b", name="c")])
    assert journal.replay() == [BUILD]
