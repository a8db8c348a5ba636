"""`Describe`: numbers or a clear reason for every kind of tensor; on a virtual GPU it costs simulated time and copies
nothing large."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from places import Place, place_of
from torch import nn

from devexplorer.core.base import BadInput
from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.parameters import describing as statistics
from devexplorer.core.parameters.records import Describe, Values, ValuesDescribed
from devexplorer.core.records import Backward, BuildModel, EditElement, NewTensor


def values_of(place: Place, target: str, **options: int) -> Values:
    (event,) = place.do(Describe(target=target, **options)).events
    assert isinstance(event, ValuesDescribed)
    return event.values


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("cpu") as made:
        yield made


def test_a_quiet_look_says_nothing_whether_there_are_values_or_not(place: Place) -> None:
    place.do(NewTensor(name="x", fill="ones", shape=(2,)))
    seen, missing = place.do(Describe(target="x", quiet=True)), place.do(Describe(target="y", quiet=True))
    assert [type(event) for event in seen.events] == [ValuesDescribed]
    assert missing.events == ()
    assert seen.answer.title == missing.answer.title == seen.answer.code == ""


def test_figures_and_first_rows(place: Place) -> None:
    place.do(NewTensor(name="x", fill="text", text="[[1, 2], [3, 4.5]]"))
    assert "2×2 float32 on cpu" in place.answer(Describe(target="x")).words
    values = values_of(place, "x")
    assert (values.mean, values.minimum, values.maximum, values.zeros) == (2.625, 1, 4.5, 0)
    assert values.first == "  1    2\n  3  4.5"


def test_the_code_prints_the_same_numbers(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.workspace.add("x", torch.tensor([1.0, 4.0, float("nan"), 0.0, -1.0]))
    answer = place.answer(Describe(target="x", bins=2))
    exec(answer.code, {"x": place.workspace.get("x")})
    assert capsys.readouterr().out.splitlines() == [
        "1 0 1",
        "1.0 1.8708286933869707 -1.0 4.0",
        "4.242640687119285 [3.0, 1.0]",
    ]


def test_a_parameter_comes_with_its_gradient(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    assert values_of(place, "mlp:0.weight").gradient is None
    place.do(Backward(target="mlp"))
    values = values_of(place, "mlp:0.weight")
    assert values.gradient is not None
    alone = values_of(place, "mlp:0.weight.grad")
    assert (alone.target, alone.norm, alone.counts) == (
        values.gradient.target,
        values.gradient.norm,
        values.gradient.counts,
    )


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_what_has_no_values_is_refused_with_the_reason(place: Place) -> None:
    place.do(BuildModel(recipe="lazy-mlp"))
    lazy = next(path for path, p in place.workspace.get("lazy-mlp").named_parameters())  # type: ignore[union-attr]
    place.workspace.add("shape", torch.empty(3, device="meta"))
    place.workspace.add("few", torch.eye(3).to_sparse())
    place.workspace.add("whole", torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))
    for target, reason in (
        (f"lazy-mlp:{lazy}", "lazy"),
        ("shape", "only has a shape"),
        ("few", "to_dense"),
        ("whole", "dequantize"),
        ("lazy-mlp", "is a model; choose one of its parameters"),
        ("nothing", "there is no object 'nothing'"),
        ("lazy-mlp:0.wieght", "has no part"),
        ("shape:grad", "no gradient"),
    ):
        with pytest.raises(BadInput, match=reason):
            place.do(Describe(target=target))
    with pytest.raises(BadInput, match="choose 1 to"):
        place.do(Describe(target="few", bins=0))


def test_bool_complex_and_empty_tensors(place: Place) -> None:
    place.workspace.add("mask", torch.tensor([True, False, True]))
    place.workspace.add("waves", torch.tensor([3 + 4j, 0j, complex(float("nan"), 1), complex(float("inf"), 0)]))
    place.workspace.add("empty", torch.empty(0, 3))
    mask = values_of(place, "mask")
    assert (mask.zeros, mask.mean, mask.counts) == (1, None, ())
    assert "2 elements of 3 are True" in place.answer(Describe(target="mask")).words
    waves = values_of(place, "waves")
    assert (waves.zeros, waves.nans, waves.infinities, waves.norm) == (1, 1, 1, 5.0)
    empty = values_of(place, "empty")
    assert (empty.elements, empty.mean, empty.first) == (0, None, "(no elements)")


def test_a_number_without_dimensions_and_whole_numbers(place: Place) -> None:
    place.workspace.add("one", torch.tensor(2.5))
    place.workspace.add("count", torch.arange(5).view(1, 5))
    assert (values_of(place, "one").mean, values_of(place, "one").first) == (2.5, "2.5")
    count = values_of(place, "count", bins=5)
    assert (count.mean, count.maximum, count.counts) == (2.0, 4.0, (1, 1, 1, 1, 1))


def test_only_nan_and_inf_leave_no_mean(place: Place) -> None:
    place.workspace.add("x", torch.tensor([float("nan"), float("inf")]))
    values = values_of(place, "x")
    assert (values.mean, values.minimum, values.norm, values.counts) == (None, None, None, ())
    assert (values.nans, values.infinities) == (1, 1)


def test_first_rows_of_many_dimensions_say_where_they_are(place: Place) -> None:
    place.workspace.add("x", torch.zeros(2, 3, 20, 20))
    first = values_of(place, "x").first.splitlines()
    assert first[0] == "at [0, 0]:"
    assert first[1] == "  ".join("0" * 8) + "  …"
    assert first[-1] == "…"
    assert len(first) == 10


def test_a_large_tensor_offers_everything_from_every_element(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "WHOLE_LIMIT", 1000)
    place.workspace.add("x", torch.arange(2000.0))
    answer = place.answer(Describe(target="x"))
    assert "from a sample of" in answer.words
    (offer,) = answer.offers
    assert values_of(place, "x").sampled
    (event,) = place.do(offer.command).events
    assert isinstance(event, ValuesDescribed)
    assert (event.values.sampled, event.values.maximum) == (0, 1999.0)
    assert place.answer(offer.command).offers == ()


def test_a_virtual_gpu_computes_it_in_simulated_time_and_sends_little() -> None:
    with place_of("vgpu") as place:
        place.do(NewTensor(name="x", fill="randn", shape=(1000, 500), device="vgpu:0"))
        held = place.allocated("vgpu:0")
        values = values_of(place, "x")
        assert values.simulated
        assert 0 < values.seconds < 1e-3
        profile = place.registry.info("vgpu:0")
        assert profile.simulated
        assert place.allocated("vgpu:0") == held
        tensor = place.workspace.get("x")
        assert isinstance(tensor, torch.Tensor)
        assert values.mean == pytest.approx(float(tensor.cpu().double().mean()), abs=1e-7)


def test_it_changes_nothing(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    before = place.snapshot("mlp")
    state = torch.get_rng_state()
    outcome = place.do(Describe(target="mlp:0.weight"))
    assert outcome.changed == ()
    assert place.snapshot("mlp") == before
    assert torch.equal(torch.get_rng_state(), state)
    model = place.workspace.get("mlp")
    assert isinstance(model, nn.Module)
    assert place.workspace.history.state().title == "the new model mlp"


@pytest.mark.parametrize(
    ("dtype", "value"), [("float32", 1e30), ("float32", math.inf), ("bfloat16", 3e38), ("float64", 1.7e308)]
)
def test_values_of_a_training_that_went_wrong_arrive_in_the_window(dtype: str, value: float) -> None:
    with LocalEngine() as engine:
        engine.demand(NewTensor(name="x", shape=(100,), fill="ones", dtype=dtype, device="cpu"))
        engine.demand(EditElement(target="x", index=(1,), value=value))
        engine.demand(EditElement(target="x", index=(2,), value=-value))
        described = next(
            event.values for event in engine.demand(Describe(target="x")) if isinstance(event, ValuesDescribed)
        )
    assert described.nans == 0
    assert described.infinities == (2 if math.isinf(value) else 0)
    assert sum(described.counts) == 100 - described.infinities
    assert all(number is None or math.isfinite(number) for number in (described.mean, described.std, described.norm))
