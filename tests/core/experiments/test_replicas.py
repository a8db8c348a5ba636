"""Replicas of a model: all of them or none, split as torch.chunk splits, named without clashes, and equivalent code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from places import Place, place_of
from torch import nn

from devexplorer.core.base import BadInput, Cancelled, DevExplorerError, ProgressMonitor, python_names
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.experiments.records import Replicate
from devexplorer.core.experiments.replicate import ReplicaRun
from devexplorer.core.models.run import RunFailed
from devexplorer.core.records import BuildModel, Move, NewTensor, Redo, Undo

DEVICES = ("vgpu:0", "vgpu:1")


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu", "3x Tesla T4") as made:
        yield made


def build(place: Place, recipe: str, rows: int = 5) -> nn.Module:
    place.do(BuildModel(recipe=recipe, device="vgpu:0"))
    place.do(NewTensor(name="x", fill="randn", shape=(rows, 20), device="vgpu:0"))
    model = place.workspace.get(recipe)
    assert isinstance(model, nn.Module)
    return model


def test_a_second_time_the_numbers_go_on(place: Place) -> None:
    build(place, "mlp")
    for wanted in (("mlp-0", "mlp-1"), ("mlp-2", "mlp-3")):
        done = place.do(Replicate(target="mlp", devices=DEVICES, input="x"))
        assert tuple(snapshot.name for snapshot in done.changed) == wanted
    place.do(Undo())
    place.do(Undo())
    assert place.workspace.names == ("mlp", "x")
    assert [snapshot.name for snapshot in place.do(Redo()).changed] == ["mlp-0", "mlp-1"]


def test_a_part_of_a_model_can_be_replicated(place: Place) -> None:
    build(place, "nested")
    done = place.do(Replicate(target="nested:0.block 1", devices=DEVICES, input="x"))
    assert [snapshot.name for snapshot in done.changed] == ["nested-block 1-0", "nested-block 1-1"]
    with pytest.raises(BadInput, match="needs an input"):
        place.do(Replicate(target="nested:0.block 1", devices=DEVICES))


@pytest.mark.parametrize("rows", [1, 2, 4, 7])
def test_rows_are_split_as_torch_does(place: Place, rows: int) -> None:
    build(place, "mlp", rows)
    words = place.do(Replicate(target="mlp", devices=("vgpu:0", "vgpu:1", "vgpu:2"), input="x")).answer.words
    sizes = [len(part) for part in torch.zeros(rows).chunk(3)]
    sizes += [0] * (3 - len(sizes))
    assert f"torch.chunk does: {' + '.join(map(str, sizes))}." in words
    assert ("had nothing to do" in words) == (0 in sizes)


def test_a_run_that_fails_leaves_no_copy_behind(place: Place) -> None:
    build(place, "list-pitfall")  # its layers do not follow .to()
    held = [place.allocated(device) for device in DEVICES]
    with pytest.raises(RunFailed):
        place.do(Replicate(target="list-pitfall", devices=DEVICES, input="x"))
    assert place.workspace.names == ("list-pitfall", "x")
    assert [place.allocated(device) for device in DEVICES] == held
    answer = place.answer(Replicate(target="list-pitfall", devices=DEVICES, input="x"))
    assert answer.title == "list-pitfall: tensors on different devices"


def test_a_cancelled_one_leaves_no_copy_behind(place: Place) -> None:
    build(place, "mlp")
    said: list[str] = []
    progress = ProgressMonitor(
        report=lambda done, text, part="": said.append(text), cancelled=lambda: "a copy on vgpu:0" in said
    )
    with pytest.raises(Cancelled):
        dispatch(place.workspace, Replicate(target="mlp", devices=DEVICES, input="x"), progress)
    assert place.workspace.names == ("mlp", "x")
    assert place.held("vgpu:1") == 0


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (Replicate(target="mlp", devices=("vgpu:0", "vgpu:0")), "vgpu:0 is named twice"),
        (Replicate(target="mlp", devices=()), "over two devices at least"),
        (Replicate(target="x", devices=DEVICES), "'x' is a tensor"),
        (Replicate(target="mlp", devices=("vgpu:0", "vgpu:7")), "there is no device 'vgpu:7'"),
        (Replicate(target="mlp", devices=DEVICES, input="s"), "dimension 0 of every input"),
        (Replicate(target="lazy-mlp", devices=DEVICES, input="x"), "run it once before"),
        (Replicate(target="split", devices=DEVICES, input="x"), "bring it together on one device"),
    ],
)
def test_what_cannot_be_replicated_is_refused(place: Place, command: Replicate, words: str) -> None:
    build(place, "mlp")
    place.do(NewTensor(name="s", device="vgpu:0"))
    place.do(BuildModel(recipe="lazy-mlp"))
    place.do(BuildModel(recipe="mlp", name="split"))
    place.do(Move(targets=("split:2",), device="vgpu:1"))
    before = place.workspace.names
    with pytest.raises(DevExplorerError, match=words):
        place.do(command)
    assert place.workspace.names == before


def test_the_original_is_not_run_and_modes_stay(place: Place) -> None:
    model = nn.Sequential(nn.BatchNorm1d(20), nn.Dropout(0.5), nn.Linear(20, 3))
    model[0].eval()
    place.workspace.add("net", model)
    place.do(NewTensor(name="x", fill="randn", shape=(6, 20)))
    answer = place.do(Replicate(target="net", devices=DEVICES, input="x")).answer
    assert "SyncBatchNorm" in answer.words
    assert {fact.label: fact.value for fact in answer.facts}["output 0"] == "6×3 float32 on vgpu:0"
    copies = [place.workspace.get(name) for name in ("net-0", "net-1")]
    for one in (model, *copies):
        assert isinstance(one, nn.Sequential)
        assert [part.training for part in one.modules()] == [True, False, True, True]
        assert one[0].num_batches_tracked.item() == 0


def test_outputs_that_depend_on_other_rows_are_distinguished_from_rounding(place: Place) -> None:
    class Mixing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - x.mean(dim=0)

    place.workspace.add("mixing", Mixing())
    place.do(NewTensor(name="x", fill="randn", shape=(4, 20)))
    assert (
        "its rows depend on each other" in place.do(Replicate(target="mixing", devices=DEVICES, input="x")).answer.words
    )


def test_several_inputs_and_outputs_are_split_and_gathered(place: Place) -> None:
    class Two(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"sum": a + b, "norm": (a * b).sum()}

    place.workspace.add("two", Two())
    for name in ("x", "y"):
        place.do(NewTensor(name=name, fill="randn", shape=(4, 20)))
    answer = place.do(Replicate(target="two", devices=DEVICES, input="x, y")).answer
    facts = {fact.label: fact.value for fact in answer.facts}
    assert (facts["output 0"], facts["output 1"]) == (
        "4×20 float32 on vgpu:0",
        "2 float32 on vgpu:0",
    )  # scalars are stacked
    assert "1 output did not have the batch first" in answer.words
    place.do(NewTensor(name="z", fill="randn", shape=(3, 20)))
    with pytest.raises(BadInput, match="of one size"):
        place.do(Replicate(target="two", devices=DEVICES, input="x, z"))


@pytest.mark.parametrize(("recipe", "given"), [("mlp", "x"), ("mlp", None), ("two-towers", None), ("lstm", None)])
def test_the_code_makes_the_same_copies(
    place: Place, recipe: str, given: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    model = build(place, recipe)
    answer = place.do(Replicate(target=recipe, devices=DEVICES, input=given)).answer
    scope = {python_names.variable(recipe): model, "x": place.workspace.get("x")}
    exec(answer.code, scope)
    for number, device in enumerate(DEVICES):
        ours, theirs = place.workspace.get(f"{recipe}-{number}"), scope[python_names.variable(f"{recipe}-{number}")]
        assert isinstance(ours, nn.Module)
        assert isinstance(theirs, nn.Module)
        assert {str(parameter.device) for parameter in theirs.parameters()} == {device}
        assert theirs.training == ours.training
        assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    printed = capsys.readouterr().out.strip()
    output = next(fact.value for fact in answer.facts if fact.label == "output 0")
    assert printed == f"torch.Size({[int(side) for side in output.split()[0].split('×')]})"


def test_simulated_times_add_up(place: Place) -> None:
    model = build(place, "mlp", 4)
    chunks = [[torch.randn(2, 20)], [torch.randn(2, 20)]]
    copies = [model, place.do(Move(targets=("mlp",), device="vgpu:1", copy=True)).report]
    second = place.workspace.get(copies[1].created[0])  # type: ignore[union-attr]
    assert isinstance(second, nn.Module)
    ran = ReplicaRun(place.registry, "", DEVICES, [model, second]).all([torch.randn(4, 20)], chunks)
    assert ran.together is not None
    slowest = max(part.copying.seconds + part.forward.seconds for part in ran.parts)
    assert ran.together.seconds == pytest.approx(slowest + ran.gathering.seconds)
    assert all(timed.simulated for part in ran.parts for timed in (part.copying, part.forward))


def test_real_and_simulated_devices_have_no_time_together(place: Place) -> None:
    build(place, "mlp")
    answer = place.do(Replicate(target="mlp", devices=("cpu", "vgpu:0"), input="x")).answer
    facts = {fact.label: fact.value for fact in answer.facts}
    assert "together" not in facts
    assert "no clock in common" in answer.words
    assert facts["cpu"].count("simulated") == 1  # its rows came from a simulated device; its forward was real
    assert "simulated" in facts["gathering"]


def test_the_code_for_a_model_without_a_recipe_makes_its_sample_again(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Linear(4, 3)
    place.workspace.add("net", model)
    answer = place.do(Replicate(target="net", devices=DEVICES)).answer
    exec(answer.code, {"net": model})
    assert capsys.readouterr().out.startswith("torch.Size(")


def test_real_devices_are_timed_together_on_the_wall(place: Place) -> None:
    models = [nn.Linear(4, 3) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    x = torch.randn(5, 4)
    ran = ReplicaRun(place.registry, "", ("cpu", "cpu"), models).all([x], [[part] for part in x.chunk(2)])
    assert ran.together is not None
    assert not ran.together.simulated
    assert ran.together.seconds > 0
    assert [part.rows for part in ran.parts] == [3, 2]
    assert ran.difference < 1e-6
