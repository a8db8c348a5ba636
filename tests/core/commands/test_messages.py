"""Messages: whole sentences, correct numbers, and Python that runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec
import pytest
from places import Place, place_of

from devexplorer.core.base import BadInput, DoesNotFit, MoveFailed
from devexplorer.core.commands import messages
from devexplorer.core.commands.messages import move_code
from devexplorer.core.commands.refusals import refusal
from devexplorer.core.commands.registry import title_of
from devexplorer.core.feature import any_event, decoder
from devexplorer.core.records import (
    AddVirtual,
    Answer,
    Backward,
    BuildModel,
    Combine,
    EditElement,
    Forward,
    Move,
    MoveReport,
    NewTensor,
    Remove,
    Steps,
    Undo,
)


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


def a_story(place: Place) -> list[Answer]:
    """Every action once, with names that are not valid Python."""
    commands = [
        BuildModel(recipe="nested", name="my net-1", device="vgpu:0", dtype="float64"),
        BuildModel(recipe="tied"),
        BuildModel(recipe="lazy-mlp"),
        BuildModel(recipe="list-pitfall"),
        NewTensor(name="x", fill="randn", shape=(2, 20)),
        NewTensor(name="class", fill="text", text="[1, 2]"),
        NewTensor(name="y", shape=(2, 20), requires_grad=True, device="cuda:7", fall_back=True),
        Move(targets=("x", "tied"), device="vgpu:1"),
        Move(targets=("y",), device="vgpu:1"),
        Move(targets=("my net-1:0.block 1",), device="vgpu:1", dtype="half"),
        Undo(),
        Move(targets=("lazy-mlp",), device="vgpu:0"),
        Forward(target="lazy-mlp"),
        Backward(target="tied", input="x"),
        Backward(target="tied", input="x"),
        Forward(target="tied", input="x", output="out"),
        EditElement(target="tied:4.bias", index=(0,), value=1.5),
        EditElement(target="class", index=(1,), value=5),
        Move(targets=("class", "tied"), device="vgpu:0", copy=True),
        Undo(),
        Combine(left="x", right="x", operator="*"),
        Move(targets=("list-pitfall",), device="vgpu:0"),
        Move(targets=("x",), device="vgpu:1"),
        Remove(names=("class", "x")),
    ]
    answers = [place.answer(command) for command in commands]
    assert [answer.words for answer in answers if answer.failed] == []
    return answers


def test_every_answer_is_whole_sentences_and_its_code_is_python(place: Place) -> None:
    for answer in a_story(place):
        assert answer.title
        assert not answer.title.endswith(".")
        assert answer.words[0].isupper() or answer.words[0].isdigit() or answer.words[0] in "._xyot"
        assert answer.words.endswith(".")
        assert "  " not in answer.words
        assert "!" not in answer.words + answer.title
        ast.parse(answer.code)
        for fact in answer.facts:
            assert fact.label
            assert fact.value


def test_every_answer_survives_the_link(place: Place) -> None:
    encoder, reading = msgspec.msgpack.Encoder(), decoder(any_event())
    for answer in a_story(place):
        assert reading.decode(encoder.encode(answer)) == answer


def test_whatever_time_is_reported_of_a_virtual_gpu_is_called_simulated(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    answer = place.answer(Move(targets=("mlp",), device="vgpu:0"))
    facts = {fact.label: fact.value for fact in answer.facts}
    assert "simulated" in facts["time"]
    assert "simulated" in facts["rate"]
    assert "(simulated)" in place.answer(Forward(target="mlp")).words


def test_a_lossy_cast_says_so_and_what_undo_keeps(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    answer = place.answer(Move(targets=("mlp",), device="cpu", dtype="bf16"))
    assert "bfloat16 cannot hold every value exactly; the originals are kept for undo, 31.04 KiB in all" in answer.words
    assert answer.code == "mlp.to(torch.bfloat16)"
    exact = place.answer(Move(targets=("mlp",), device="cpu", dtype="float32"))
    assert "cannot hold" not in exact.words


def test_a_cast_is_no_move_in_any_of_its_words(place: Place) -> None:
    """ "x is now on cpu" of a tensor that was there all along."""
    place.do(NewTensor(name="x", fill="randn", shape=(5,)))
    place.do(BuildModel(recipe="tied"))
    for target, title in (("x", "x is now float16"), ("tied", "tied is now float16")):
        command = Move(targets=(target,), device="cpu", dtype="half")
        assert title_of(command) == f"casting {target} to half on cpu"
        answer = place.answer(command)
        assert answer.title == title
        assert "move" not in answer.words, answer.words
        assert {fact.label: fact.value for fact in answer.facts}["dtype"] == "float16"
        assert place.workspace.history.state().title == f"the cast of {target} to float16"
        assert place.answer(command).title == f"{target} is float16 on cpu already"
        undone = place.answer(Undo())
        assert undone.title == f"{target} is in its old dtype again"
    both = place.answer(Move(targets=("x",), device="vgpu:0", dtype="half"))
    assert both.title == "x is now on vgpu:0, as a new tensor"
    assert place.workspace.history.state().title == "the move of x to vgpu:0 as float16"
    assert title_of(Move(targets=("x",), device="vgpu:0", copy=True)) == "copying x to vgpu:0"
    assert place.answer(Move(targets=("gone",), device="cpu", dtype="half")).title == "gone was not cast"
    assert place.answer(Move(targets=("gone",), device="cpu", copy=True)).title == "gone was not copied"


REPORT = MoveReport(
    objects=("a b", "m:0.block 1"), source=("cpu",), destination="vgpu:1", dtype=None, parameters=1, buffers=0,
    gradients=0, tensors=1,
    bytes=8, seconds=1.0, wall_seconds=1.0, gb_per_s=None, simulated=False,
)  # fmt: skip


def test_the_code_of_a_move() -> None:
    kinds = {"a b": "tensor", "m": "model"}
    assert move_code(REPORT, kinds) == 'a_b = a_b.to("vgpu:1")\nm.get_submodule("0.block 1").to("vgpu:1")'
    copied = msgspec.structs.replace(REPORT, copied=True, created=("a b2", "m-block 1"), dtype="float16")
    assert (
        move_code(copied, kinds) == 'import copy\na_b2 = a_b.to("vgpu:1", torch.float16, copy=True)\n'
        'm_block_1 = copy.deepcopy(m.get_submodule("0.block 1")).to("vgpu:1", torch.float16)'
    )


def test_a_refusal_that_virtual_gpus_would_help_offers_them() -> None:
    error = BadInput("there is no device 'cuda:1' here; there is cpu", virtual_helps=True)
    answer = refusal(error, Move(targets=("m:0",), device="cuda:1"))
    assert answer.failed
    assert answer.title == "m:0 was not moved"
    assert answer.subject == "m"
    assert answer.words.startswith("There is no device 'cuda:1' here; there is cpu.")
    add = AddVirtual(spec="2x Tesla T4")
    both = Steps(commands=(add, Move(targets=("m:0",), device="vgpu:1")))
    assert [offer.command for offer in answer.offers] == [both, add]
    assert answer.offers[0].label == "Add virtual GPUs and use vgpu:1"
    for device in ("cuda:2", "xpu:0"):
        answer = refusal(error, Move(targets=("m:0",), device=device))
        assert [offer.command for offer in answer.offers] == [add], "two virtual GPUs would not do"


def test_a_refused_tensor_can_be_made_on_the_cpu_instead() -> None:
    command = NewTensor(request=5, shape=(3,), device="cuda:1")
    answer = refusal(BadInput("no", virtual_helps=True), command)
    assert NewTensor(shape=(3,), device="cpu") in [offer.command for offer in answer.offers]


def test_several_findings_are_listed() -> None:
    answer = refusal(BadInput("one", "two"), BuildModel(recipe="x"))
    assert answer.words == "2 things are not right:\n• one\n• two"
    assert not answer.offers


def test_what_does_not_fit_is_reported_in_bytes() -> None:
    error = DoesNotFit("this needs more", device="vgpu:0", needed_bytes=3 << 30, free_bytes=1 << 30)
    facts = {fact.label: fact.value for fact in refusal(error, Undo()).facts}
    assert facts == {"needed": "3.00 GiB", "free on vgpu:0": "1.00 GiB"}


def test_other_errors_are_passed_on_as_a_sentence() -> None:
    assert refusal(MoveFailed("the copy broke")).words == "The copy broke."


def test_a_removed_object_that_undo_keeps_frees_its_device_and_no_memory_of_the_host() -> None:
    answer = messages.removed(("mlp",), {"vgpu:0": 2048, "cpu": 512}, 2560)
    assert "so its memory was freed: 2.00 KiB on vgpu:0. PyTorch keeps it cached on the device" in answer.words
    assert "2.50 KiB is kept in host memory" in answer.words
    host = messages.removed(("x", "y"), {"cpu": 512}, 512)
    assert "freed" not in host.words
    assert "so that Undo can restore them" in host.words
    final = messages.removed(("x",), {"cpu": 512})
    assert final.words == "No other name refers to it, so its memory was freed: 512 B on cpu."
