"""`Initialise`: every rule equals `torch.nn.init`, is repeatable, and leaves the global generators untouched."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.base import BadInput, Cancelled, ProgressMonitor
from devexplorer.core.parameters.initialising import RULES, initialise
from devexplorer.core.parameters.records import Initialise, MakeOptimizer, TrainStep, ValuesDescribed
from devexplorer.core.records import BuildModel, NewTensor, Redo, Undo


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("cpu") as made:
        yield made


def model(place: Place, name: str = "mlp") -> nn.Module:
    found = place.workspace.get(name)
    assert isinstance(found, nn.Module)
    return found


def weights(place: Place, path: str = "0.weight", name: str = "mlp") -> Tensor:
    return model(place, name).get_parameter(path).detach().clone()


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_on_one_tensor_its_code_and_its_undo(rule: str) -> None:
    with place_of("vgpu") as place:
        place.do(BuildModel(recipe="mlp", device=place.first))
        old = weights(place).cpu()
        outcome = place.do(Initialise(target="mlp:0.weight", rule=rule, seed=5))
        new = weights(place).cpu()
        assert not torch.equal(new, old)
        (event,) = outcome.events
        assert isinstance(event, ValuesDescribed)
        assert event.before is not None
        assert event.before.mean == pytest.approx(float(old.double().mean()), abs=1e-8)
        assert event.values.mean == pytest.approx(float(new.double().mean()), abs=1e-6)
        with torch.no_grad():
            model(place).get_parameter("0.weight").zero_()
        exec(outcome.answer.code, {"mlp": model(place)})
        assert torch.equal(weights(place).cpu(), new)
        place.do(Undo())
        assert torch.equal(weights(place).cpu(), old)
        place.do(Redo())
        assert torch.equal(weights(place).cpu(), new)


def test_what_the_rules_promise(place: Place) -> None:
    place.do(NewTensor(name="w", fill="zeros", shape=(400, 100)))
    tensor = place.workspace.get("w")
    assert isinstance(tensor, Tensor)

    def become(rule: str, **options: float) -> Tensor:
        place.do(Initialise(target="w", rule=rule, options=options))
        return tensor

    assert float(become("normal", mean=2, std=0.5).std()) == pytest.approx(0.5, rel=0.02)
    assert float(become("uniform", low=-3, high=-1).max()) <= -1
    assert float(become("xavier-uniform").abs().max()) == pytest.approx(math.sqrt(6 / 500), rel=0.01)
    assert float(become("xavier-normal", gain=2).std()) == pytest.approx(2 * math.sqrt(2 / 500), rel=0.02)
    assert float(become("kaiming-normal").std()) == pytest.approx(math.sqrt(2 / 100), rel=0.02)
    assert float(become("kaiming-uniform", a=1).abs().max()) == pytest.approx(math.sqrt(3 / 100), rel=0.01)
    piecewise = become("piecewise", low=-10, high=10, threshold=5)
    assert float((piecewise == 0).double().mean()) == pytest.approx(0.5, abs=0.02)
    assert float(piecewise[piecewise != 0].abs().min()) >= 5
    assert become("constant", value=0.25).unique().tolist() == [0.25]


def test_the_same_seed_gives_the_same_and_the_global_generator_stays(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    state = torch.get_rng_state()
    place.do(Initialise(target="mlp", rule="normal", seed=1))
    first = weights(place)
    place.do(Initialise(target="mlp", rule="normal", seed=2))
    assert not torch.equal(weights(place), first)
    place.do(Initialise(target="mlp", rule="normal", seed=1))
    assert torch.equal(weights(place), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_module_gets_its_weights_and_biases_only_when_asked(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    bias = weights(place, "0.bias")
    other = weights(place, "2.weight")
    place.do(Initialise(target="mlp:0", rule="kaiming-normal"))
    assert torch.equal(weights(place, "0.bias"), bias)
    assert torch.equal(weights(place, "2.weight"), other)
    answer = place.answer(Initialise(target="mlp", rule="kaiming-normal", biases=True))
    assert weights(place, "0.bias").count_nonzero() == 0
    assert "2 parameters of one dimension got zeros" in answer.words
    made = {path: p.detach().clone() for path, p in model(place).named_parameters()}
    place.do(Initialise(target="mlp", rule="constant", options={"value": 7}, biases=True))
    assert {float(p.detach().mean()) for p in model(place).parameters()} == {7.0}
    exec(answer.code, {"mlp": model(place)})
    assert all(torch.equal(p, made[path]) for path, p in model(place).named_parameters())


def test_a_split_model_is_drawn_where_its_parts_are_and_alike_everywhere() -> None:
    drawn = []
    for device in ("cpu", "vgpu:1"):
        with place_of("vgpu") as place:
            place.do(BuildModel(recipe="mlp", device=device))
            place.do(Initialise(target="mlp", rule="xavier-normal", seed=9))
            drawn.append(weights(place).cpu())
    assert torch.equal(*drawn)


def test_a_tied_parameter_is_drawn_once_and_named(place: Place) -> None:
    place.do(BuildModel(recipe="tied"))
    answer = place.answer(Initialise(target="tied:4.weight", rule="ones"))
    assert "2.weight is the very same Parameter and changed with it" in answer.words
    assert weights(place, "2.weight", "tied").unique().tolist() == [1.0]


def test_what_makes_no_sense_is_refused_and_changes_nothing(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(BuildModel(recipe="lazy-mlp"))
    place.do(NewTensor(name="count", fill="arange", shape=(4,)))
    place.workspace.add("wide", torch.ones(1).expand(5))
    with torch.inference_mode():
        place.workspace.add("fixed", torch.ones(3))
    before = weights(place)
    for target, rule, options, reason in (
        ("mlp:0.bias", "xavier-uniform", {}, "two dimensions"),
        ("mlp:0.weight", "xavier", {}, "did you mean xavier-normal"),
        ("mlp:0.weight", "normal", {"sdt": 1.0}, "did you mean std"),
        ("mlp:0.weight", "zeros", {"value": 1.0}, "it has no options"),
        ("mlp:0.weight", "normal", {"std": -1.0}, "0 or more"),
        ("mlp:0.weight", "uniform", {"low": 3.0, "high": 1.0}, "exchange"),
        ("mlp:0.weight", "constant", {"value": math.nan}, "no number"),
        ("mlp:1", "normal", {}, "no weights"),
        ("lazy-mlp", "normal", {}, "run the model once first"),
        ("wide", "ones", {}, "one place in memory"),
        ("fixed", "zeros", {}, "inference mode"),
        ("count", "normal", {}, "whole numbers can be constant"),
        ("count", "constant", {"value": 0.5}, "whole numbers only"),
        ("mlp:0.wieght", "normal", {}, "did you mean"),
    ):
        with pytest.raises(BadInput, match=reason):
            place.do(Initialise(target=target, rule=rule, options=options))
    assert torch.equal(weights(place), before)
    place.do(Initialise(target="count", rule="constant", options={"value": 3}))
    assert place.workspace.tensor_named("count").tolist() == [3, 3, 3, 3]


def test_cancelled_half_way_everything_is_as_before(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    before = {path: p.detach().clone() for path, p in model(place).named_parameters()}
    asked = iter([False, True])
    command = Initialise(target="mlp", rule="ones")
    with pytest.raises(Cancelled), place.workspace.history.transaction(command):
        initialise(place.workspace, command, ProgressMonitor(cancelled=lambda: next(asked)))
    assert all(torch.equal(p, before[path]) for path, p in model(place).named_parameters())


def test_the_answer_says_that_the_optimizers_state_is_of_old_values(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(MakeOptimizer(target="mlp"))
    assert "old values" not in place.answer(Initialise(target="mlp", rule="normal")).words
    place.do(TrainStep(target="mlp"))
    assert "old values" in place.answer(Initialise(target="mlp", rule="normal")).words
