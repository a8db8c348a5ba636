from __future__ import annotations

import ast
import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.base import BadInput, DoesNotFit
from devexplorer.core.models.extras import Extras
from devexplorer.core.records import AddVirtual, Backward, BuildModel, Forward, Move, NewTensor, Redo, Undo
from devexplorer.core.split.draft import Draft
from devexplorer.core.split.records import Hopped, InsertHops, Join, PlanSplit, Split, SplitPlan, SplitPlanned
from devexplorer.core.workspace.runs import inputs_of

pytestmark = pytest.mark.usefixtures("warm_processes")

TWO_TOWERS = {"query": "vgpu:0", "item": "vgpu:1"}


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


def built(place: Place, recipe: str, device: str = "cpu") -> nn.Module:
    place.do(BuildModel(recipe=recipe, device=device))
    model = place.workspace.get(recipe)
    assert isinstance(model, nn.Module)
    return model.eval()


def planned(place: Place, command: PlanSplit) -> SplitPlan:
    (event,) = place.do(command).events
    assert isinstance(event, SplitPlanned)
    return event.plan


def spread(place: Place, name: str) -> SplitPlan:
    """A plan with equal parts."""
    return planned(place, PlanSplit(target=name, even=True))


def carry_out(place: Place, plan: SplitPlan) -> None:
    place.do(Draft(plan).command())


def output(place: Place, target: str) -> Tensor:
    """The model's output for its sample input."""
    aim = place.workspace.target(target)
    assert isinstance(aim.thing, nn.Module)
    with torch.no_grad():
        result: Tensor = aim.thing(*inputs_of(place.workspace, aim, ()))
    return result.cpu()


# --- plans


def test_a_plan_moves_nothing_and_says_so(place: Place):
    built(place, "mlp")
    outcome = place.do(PlanSplit(target="mlp", budgets={"vgpu:0": 22_000, "vgpu:1": 22_000}))
    (event,) = outcome.events
    assert isinstance(event, SplitPlanned)
    assert [(block.path, block.type, block.device, block.now) for block in event.plan.blocks] == [
        ("0", "Linear", "vgpu:0", ("cpu",)),
        ("2", "Linear", "vgpu:1", ("cpu",)),
    ]
    assert [(share.device, share.budget_bytes, share.used_bytes) for share in event.plan.shares] == [
        ("vgpu:0", 22_000, 21_504),
        ("vgpu:1", 22_000, 10_280),
    ]
    assert event.plan.hops == 1
    assert outcome.answer.words.endswith("Nothing has moved yet.")
    assert "activations cross to another device once per forward pass" in outcome.answer.words
    assert place.snapshot("mlp").bytes_by_device == {"cpu": 31_784}
    assert place.workspace.history.state().title == "the new model mlp"


def test_without_budgets_what_is_free_less_a_tenth_and_equal_budgets_spread_it(place: Place):
    built(place, "nested", "vgpu:0")
    outcome = place.do(PlanSplit(target="nested"))
    (event,) = outcome.events
    assert isinstance(event, SplitPlanned)
    free = place.registry.backend("vgpu:1").free_bytes("vgpu:1")
    assert free is not None
    assert [share.device for share in event.plan.shares] == ["vgpu:0", "vgpu:1", "cpu"]
    assert event.plan.shares[1].budget_bytes == pytest.approx(0.9 * free, rel=0.05)
    assert "need not be split" in outcome.answer.words
    assert outcome.answer.offers == (), "the page carries it out, as it is edited there"
    even = spread(place, "nested")
    assert {block.device for block in even.blocks} == {"vgpu:0", "vgpu:1"}
    assert [share.device for share in even.shares] == ["vgpu:0", "vgpu:1", "cpu"]
    assert even.shares[1].budget_bytes == pytest.approx(0.9 * free, rel=0.05), "the equal part is no limit"
    edited = Draft(even)
    edited.put(range(len(even.blocks)), "vgpu:1")
    assert edited.over() == []


def test_tied_blocks_say_so_and_a_budget_of_nothing_leaves_a_device_out(place: Place):
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    place.workspace.add("m", nn.Sequential(first, nn.Linear(4, 4), second))
    plan = planned(place, PlanSplit(target="m", budgets={"vgpu:0": 0, "vgpu:1": 100, "cpu": 200}))
    assert [block.tied_with for block in plan.blocks] == [("2",), (), ("0",)]
    assert [block.device for block in plan.blocks] == ["vgpu:1", "cpu", "vgpu:1"]
    assert [share.device for share in plan.shares] == ["vgpu:1", "cpu"]


def test_a_layer_larger_than_every_budget_is_cut_with_a_warning(place: Place):
    built(place, "parallel")
    plan = planned(place, PlanSplit(target="parallel", budgets={"vgpu:0": 4_500, "vgpu:1": 4_500}))
    assert [block.path for block in plan.blocks] == ["0.left.0", "0.right.0", "1"]
    assert "'0' (Parallel) is larger than every budget and was cut" in plan.warnings[0]


@pytest.mark.parametrize(
    ("budgets", "said"),
    [
        ({"vgpu:0": 100}, r"'mlp' needs 31.04 KiB and the budgets together are 100 B: 100 B on vgpu:0"),
        ({"vgpu:0": -1}, r"a budget of -1 bytes for vgpu:0 is negative; 0 excludes the device"),
        ({"vgpu:0": 0}, r"every budget is 0"),
        ({"vgpu:7": 100}, r"vgpu:7"),
    ],
)
def test_budgets_that_do_not_do_are_refused(place: Place, budgets: dict[str, int], said: str):
    built(place, "mlp")
    with pytest.raises(BadInput, match=said):
        place.do(PlanSplit(target="mlp", budgets=budgets))


def test_what_cannot_be_split_is_refused(place: Place):
    built(place, "list-pitfall")
    with pytest.raises(BadInput, match="no parameters and buffers"):
        place.do(PlanSplit(target="list-pitfall"))
    with pytest.raises(BadInput, match="has nothing to split"):
        place.do(Split(target="list-pitfall", device_map={"": "vgpu:0"}))
    built(place, "mlp")
    place.do(NewTensor(name="x", shape=(2,)))
    for command in (
        PlanSplit(target="x"),
        Split(target="x", device_map={}),
        Join(target="x", device="cpu"),
        InsertHops(target="x"),
    ):
        with pytest.raises(BadInput, match="'x' is a tensor; choose a model"):
            place.do(command)
    with pytest.raises(BadInput, match="choose the whole one, 'mlp'"):
        place.do(PlanSplit(target="mlp:0"))


def test_splitting_by_hand_works_without_accelerate(place: Place, monkeypatch: pytest.MonkeyPatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "accelerate" else real(name, *rest)
    )
    built(place, "two-towers")
    answer = place.answer(PlanSplit(target="two-towers"))
    assert answer.failed
    assert 'pip install "devexplorer[split]"' in answer.words
    expected = output(place, "two-towers")
    place.do(Split(target="two-towers", device_map=TWO_TOWERS))
    assert torch.allclose(output(place, "two-towers"), expected)
    place.do(Join(target="two-towers", device="vgpu:1"))


# --- splits


@pytest.mark.parametrize("recipe", ["two-towers", "lenet", "transformer", "lstm", "tied", "custom-layers", "resnet18"])
def test_a_split_model_computes_what_it_did_on_one_device(place: Place, recipe: str):
    built(place, recipe)
    expected = output(place, recipe)
    carry_out(place, spread(place, recipe))
    snapshot = place.snapshot(recipe)
    assert set(snapshot.bytes_by_device) == {"vgpu:0", "vgpu:1"}
    assert snapshot.hops
    outcome = place.do(Forward(target=recipe))
    (event,) = outcome.events
    assert isinstance(event, Hopped)
    assert event.target == recipe
    assert "vgpu:1" in {hop.destination for hop in event.hops}
    assert f"Activations hopped {len(event.hops)} time" in outcome.answer.words
    assert "(simulated)" in outcome.answer.words.partition("hopped")[2]
    assert torch.allclose(output(place, recipe), expected, atol=1e-5)
    place.do(Backward(target=recipe))
    assert all(
        row.devices == ("vgpu:0",) or row.devices == ("vgpu:1",)
        for row in place.snapshot(recipe).rows
        if row.kind == "gradient"
    )


def test_undo_takes_the_whole_split_back_and_redo_does_it_again(place: Place):
    model = built(place, "two-towers")
    place.do(Split(target="two-towers", device_map=TWO_TOWERS))
    parted = place.snapshot("two-towers")
    title = place.workspace.history.state().title
    assert title == "the split of two-towers"
    place.do(Undo())
    assert place.snapshot("two-towers").bytes_by_device == {"cpu": 54_528}
    assert not place.snapshot("two-towers").hops
    assert not any(module._forward_pre_hooks for module in model.modules())
    place.do(Redo())
    assert place.snapshot("two-towers").bytes_by_device == parted.bytes_by_device
    assert not place.answer(Forward(target="two-towers")).failed


def test_a_split_that_does_not_fit_changes_nothing(place: Place, monkeypatch: pytest.MonkeyPatch):
    built(place, "two-towers")
    machine = place.registry.backend("vgpu:1")
    monkeypatch.setattr(type(machine), "device_free_bytes", lambda self, device: 1000 if device == "vgpu:1" else 10**9)
    with pytest.raises(DoesNotFit, match=r"1000 B are free on vgpu:1"):
        place.do(Split(target="two-towers", device_map=TWO_TOWERS))
    assert place.snapshot("two-towers").bytes_by_device == {"cpu": 54_528}
    assert not place.snapshot("two-towers").hops


@pytest.mark.parametrize(
    ("device_map", "said"),
    [
        (
            {"query": "vgpu:0"},
            r"leaves 4 tensors of 'two-towers' without a device: 'item.0.weight', 'item.0.bias', .* and others",
        ),
        ({"query": "vgpu:0", "items": "vgpu:1"}, r"has no part 'items'; did you mean item"),
        ({"query": "vgpu:0", "item": "vgpu:9"}, r"vgpu:9"),
        (
            {"": "vgpu:0", "item.0.weight": "vgpu:1"},
            r"'item.0' computes with all that it holds itself \(weight, bias\): put that on one",
        ),
    ],
)
def test_maps_that_do_not_do_are_refused(place: Place, device_map: dict[str, str], said: str):
    built(place, "two-towers")
    with pytest.raises(BadInput, match=said):
        place.do(Split(target="two-towers", device_map=device_map))
    assert place.snapshot("two-towers").bytes_by_device == {"cpu": 54_528}


def test_the_longest_path_counts_and_what_a_module_holds_itself_can_be_somewhere_else(place: Place):
    model = built(place, "transformer")
    expected = output(place, "transformer")
    place.do(
        Split(
            target="transformer",
            device_map={"": "vgpu:1", "encoder": "vgpu:0", "encoder.layers.1": "vgpu:1", "embedding": "cpu"},
        )
    )
    assert str(model.get_parameter("position").device) == "vgpu:1"
    assert str(model.get_parameter("encoder.layers.0.linear1.weight").device) == "vgpu:0"
    assert str(model.get_parameter("encoder.layers.1.linear1.weight").device) == "vgpu:1"
    assert str(model.get_parameter("embedding.weight").device) == "cpu"
    assert torch.allclose(output(place, "transformer"), expected, atol=1e-5)


def test_a_tied_tensor_cannot_be_torn(place: Place):
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    place.workspace.add("m", nn.Sequential(first, second))
    with pytest.raises(
        BadInput, match=r"'0.weight' and '1.weight' are two names of one tensor: it cannot be on vgpu:0 and on vgpu:1"
    ):
        place.do(Split(target="m", device_map={"0": "vgpu:0", "1": "vgpu:1"}))


def test_a_second_split_keeps_the_hops(place: Place):
    built(place, "two-towers")
    place.do(Split(target="two-towers", device_map=TWO_TOWERS))
    outcome = place.do(Split(target="two-towers", device_map={"": "vgpu:1", "query.0": "cpu"}))
    assert "Its hops stay as they are" in outcome.answer.words
    assert "class Hops" not in outcome.answer.code
    assert not place.answer(Forward(target="two-towers")).failed
    place.do(Undo())
    assert place.snapshot("two-towers").hops


# --- hops and joining


def test_a_split_model_is_cast_where_it_is(place: Place):
    model = built(place, "two-towers")
    place.do(Split(target="two-towers", device_map=TWO_TOWERS))
    before = place.snapshot("two-towers").tensors_by_device
    outcome = place.do(Move(targets=("two-towers",), device="", dtype="bfloat16"))
    assert outcome.report is not None
    assert (outcome.report.kind, outcome.answer.title) == ("cast", "two-towers is now bfloat16")
    assert outcome.answer.code == "two_towers.to(torch.bfloat16)"
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert place.snapshot("two-towers").tensors_by_device == before
    place.do(Undo())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert place.snapshot("two-towers").tensors_by_device == before
    with pytest.raises(BadInput):
        place.do(Move(targets=("two-towers",), device=""))


def test_hops_can_be_inserted_and_removed(place: Place):
    built(place, "two-towers", "vgpu:0")
    place.do(Move(targets=("two-towers:item",), device="vgpu:1"))
    with pytest.raises(BadInput, match="no hops that could be removed"):
        place.do(InsertHops(target="two-towers", on=False))
    place.do(InsertHops(target="two-towers"))
    assert not place.answer(Forward(target="two-towers")).failed
    assert "already" in place.answer(InsertHops(target="two-towers")).title
    place.do(InsertHops(target="two-towers", on=False))
    assert place.answer(Forward(target="two-towers")).failed
    place.do(Undo())
    assert not place.answer(Forward(target="two-towers")).failed
    place.do(Undo())
    assert place.answer(Forward(target="two-towers")).failed


def test_on_one_device_nothing_hops(place: Place):
    built(place, "mlp")
    assert "so nothing hops" in place.do(InsertHops(target="mlp")).answer.words
    outcome = place.do(Forward(target="mlp"))
    assert outcome.events == (Hopped(target="mlp", hops=()),)
    assert "No activation had to hop" in outcome.answer.words


def test_join_brings_everything_to_one_device_and_can_be_undone(place: Place):
    built(place, "two-towers")
    expected = output(place, "two-towers")
    place.do(Split(target="two-towers", device_map=TWO_TOWERS))
    answer = place.do(Join(target="two-towers", device="vgpu:1")).answer
    assert "26.62 KiB moved. The hops were removed" in answer.words
    snapshot = place.snapshot("two-towers")
    assert set(snapshot.bytes_by_device) == {"vgpu:1"}
    assert not snapshot.hops
    assert torch.allclose(output(place, "two-towers"), expected)
    place.do(Undo())
    assert set(place.snapshot("two-towers").bytes_by_device) == {"vgpu:0", "vgpu:1"}
    assert torch.allclose(output(place, "two-towers"), expected)


@pytest.fixture
def quiet_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    """It warns of what the test is about."""
    monkeypatch.setattr(logging.getLogger("accelerate.big_modeling"), "disabled", True)


def dispatched(place: Place) -> nn.Module:
    accelerate = pytest.importorskip("accelerate")
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    accelerate.dispatch_model(model, {"0": "cpu", "1": "cpu", "2": "cpu"}, force_hooks=True)
    place.workspace.add("theirs", model, Extras())
    return model


@pytest.mark.usefixtures("quiet_accelerate")
def test_a_model_that_accelerate_dispatched_is_refused_with_join_as_the_way_out(place: Place):
    model = dispatched(place)
    x = torch.randn(2, 4)
    expected = model(x).detach()
    assert "accelerate dispatched this model" in (place.snapshot("theirs").dispatched or "")
    for command in (
        Move(targets=("theirs",), device="vgpu:0"),
        Split(target="theirs", device_map={"": "vgpu:0"}),
        InsertHops(target="theirs"),
    ):
        answer = place.answer(command)
        assert answer.failed
        assert isinstance(answer.offers[0].command, Join)
    offer = place.answer(Move(targets=("theirs",), device="vgpu:0")).offers[0]
    assert offer.label == "Join theirs on vgpu:0"
    answer = place.do(offer.command).answer
    assert "The hooks of accelerate and its device map were removed" in answer.words
    snapshot = place.snapshot("theirs")
    assert snapshot.dispatched is None
    assert set(snapshot.bytes_by_device) == {"vgpu:0"}
    assert not {"forward", "to", "cuda", "hf_device_map"} & {key for module in model.modules() for key in vars(module)}
    assert torch.allclose(model(x.to("vgpu:0")).detach().cpu(), expected)
    place.do(Undo())
    assert place.snapshot("theirs").dispatched is not None
    assert torch.equal(model(x).detach(), expected)
    place.do(Redo())
    assert place.snapshot("theirs").dispatched is None


@pytest.mark.usefixtures("quiet_accelerate")
def test_what_accelerate_had_offloaded_comes_back(place: Place, tmp_path: object):
    accelerate = pytest.importorskip("accelerate")
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    x = torch.randn(2, 4)
    expected = model(x).detach()
    accelerate.disk_offload(model, str(tmp_path), offload_buffers=True)
    place.workspace.add("theirs", model, Extras())
    place.do(Join(target="theirs", device="vgpu:0"))
    assert torch.allclose(model(x.to("vgpu:0")).detach().cpu(), expected)
    assert place.workspace.history.state().title is None


# --- Python


PROLOGUE = """
import torch
from devexplorer.core.virtual.backend import install
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.models import samples
install().add(parse_virtual("2x Tesla T4"))
two_towers = samples.build("two-towers", seed=0)
x, z = samples.find("two-towers").sample()
with torch.no_grad():
    expected = two_towers(x, z)
"""
EPILOGUE = """
with torch.no_grad():
    assert torch.allclose(two_towers(x, z), expected), "other values"
devices = sorted({str(p.device) for p in two_towers.parameters()})
print(devices, two_towers(x, z).device, two_towers.query[0].weight.device)
"""


def test_the_python_of_split_and_join_runs_in_a_script(place: Place):
    built(place, "two-towers")
    split = place.do(Split(target="two-towers", device_map=TWO_TOWERS)).answer.code
    join = place.do(Join(target="two-towers", device="vgpu:1")).answer.code
    plan = place.do(PlanSplit(target="two-towers", budgets={"vgpu:0": 40_000, "vgpu:1": 40_000})).answer.code
    script = "\n".join(
        [
            PROLOGUE,
            split,
            EPILOGUE,
            join,
            "x, z = x.to('vgpu:1'), z.to('vgpu:1')",
            "expected = expected.to('vgpu:1')",
            EPILOGUE,
            plan,
        ]
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[:2] == ["['vgpu:0', 'vgpu:1'] cpu vgpu:0", "['vgpu:1'] vgpu:1 vgpu:1"]
    assert "vgpu:0" in ran.stdout.splitlines()[2]
    assert "not available" not in ran.stdout + ran.stderr


@pytest.mark.parametrize(("recipe", "room"), [("mlp", 22_000), ("two-towers", 40_000), ("transformer", 500_000)])
def test_the_python_of_a_plan_prints_the_plan_itself(
    place: Place, recipe: str, room: int, capsys: pytest.CaptureFixture[str]
):
    """It asked accelerate again, which numbers devices, warns that there is no 0, and answers something else than the
    repaired plan."""
    built(place, recipe)
    outcome = place.do(PlanSplit(target=recipe, budgets={"vgpu:0": room, "vgpu:1": room}))
    (event,) = outcome.events
    exec(outcome.answer.code, {})
    printed = capsys.readouterr()
    assert isinstance(event, SplitPlanned)
    device_map = {block.path: block.device for block in event.plan.blocks}
    assert ast.literal_eval(printed.out) == device_map
    assert len(set(device_map.values())) == 2
    assert printed.err == ""


def test_on_the_cpu_alone_a_plan_offers_virtual_gpus():
    with place_of("cpu") as place:
        built(place, "mlp")
        answer = place.do(PlanSplit(target="mlp")).answer
        assert answer.offers[0].command == AddVirtual(spec="2x Tesla T4")
        assert "There is only the CPU" in answer.words


def test_a_lazy_model_is_split_before_its_first_forward_and_so_it_is_in_a_script(place: Place):
    names: dict[str, object] = {"torch": torch}
    for command in (
        BuildModel(recipe="lazy-mlp"),
        Split(target="lazy-mlp", device_map={"": "vgpu:0", "2": "vgpu:1"}),
        Forward(target="lazy-mlp"),
    ):
        answer = place.do(command).answer
        exec(answer.code, names)
        if isinstance(command, Split):
            assert answer.title == "lazy-mlp is split over vgpu:0 and vgpu:1"
            assert "without a shape" in answer.words
    ours, theirs = place.workspace.get("lazy-mlp"), names["lazy_mlp"]
    assert isinstance(ours, nn.Module)
    assert isinstance(theirs, nn.Module)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert one.device == other.device
        assert torch.equal(one.cpu(), other.cpu())
