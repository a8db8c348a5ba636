"""Inputs of unknown models: tested guesses, given shapes, and the message if neither works."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.base import BadInput
from devexplorer.core.files.records import OpenModel
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.models import samples
from devexplorer.core.models.builders import SourceRecipe
from devexplorer.core.models.extras import Extras
from devexplorer.core.models.inputs import parse_inputs, sample_inputs, sampled, specs_for, tensors_for
from devexplorer.core.models.run import RunFailed, first_tensor, run, total
from devexplorer.core.models.samples.registry import specs_text
from devexplorer.core.records import Backward, Forward

pytestmark = pytest.mark.usefixtures("warm_processes")


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.linear = nn.Linear(7, 4)

    def forward(self, token_ids: Tensor, features: Tensor, mask: Tensor, scale: float = 1.0) -> Tensor:
        looked_up: Tensor = self.embedding(token_ids).mean(1)
        return (looked_up + self.linear(features)) * mask[:, :1] * scale


class Looks(nn.Module):
    """Cannot run without values, and holds a layer that PyTorch does not see."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Linear(6, 6)
        self.hidden = [nn.Linear(6, 2)]

    def forward(self, x: Tensor) -> Tensor:
        x = self.entry(x)
        return self.hidden[0](x if x.sum().item() > 0 else -x)  # type: ignore[no-any-return]


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Module()
        self.inner.weight = nn.Parameter(torch.ones(11, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.inner.get_parameter("weight")


class Nothing(nn.Module):
    def forward(self, alpha: Tensor, beta: Tensor) -> Tensor:
        raise ValueError("never")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (nn.Linear(5, 2), "2x5"),
        (nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), "2x12"),
        (nn.Sequential(nn.Conv2d(1, 4, 5), nn.Flatten(), nn.Linear(4 * 24 * 24, 2)), "2x1x28x28"),
        (nn.Sequential(nn.Conv1d(3, 4, 5), nn.ReLU()), "2x3x64"),
        (nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(3)), "2x3x32x32"),
        (nn.LSTM(6, 4, batch_first=True), "2x16x6"),
        (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), "2x16x16"),
        (nn.Transformer(16, 2, 1, 1, 32, batch_first=True), "2x16x16,2x16x16"),
        (nn.MultiheadAttention(8, 2, batch_first=True), "2x16x8,2x16x8,2x16x8"),
        (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 2)), "2x6"),
        (nn.ReLU(), "2x16"),
        (Named(), "2x16:int64,2x7,2x7"),
        (Looks(), "2x6"),
        (Own(), "2x11"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_guess_that_works_and_leaves_the_model_alone(model: nn.Module, expected: str) -> None:
    before = {
        path: tensor.clone()
        for path, tensor in model.state_dict().items()
        if "uninit" not in type(tensor).__name__.lower()
    }
    lazy = any(isinstance(one, nn.parameter.UninitializedParameter) for one in model.parameters())
    specs = specs_for(model, "mine")
    assert specs_text(specs) == expected
    assert lazy == any(isinstance(one, nn.parameter.UninitializedParameter) for one in model.parameters())
    made = tensors_for(model, specs)
    assert all(torch.equal(one, two) for one, two in zip(made, tensors_for(model, specs), strict=True)), (
        "the same each time"
    )
    model(*made)
    if not lazy:
        assert all(torch.equal(tensor, before[path]) for path, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    "name", [name for name in samples.recipes() if not name.startswith("vgg") and name != "list-pitfall"]
)
def test_each_sample_model_could_be_guessed(name: str) -> None:
    model = samples.build(name)
    model(*tensors_for(model, specs_for(model, name)))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "t5?num_layers=1&d_model=32&d_kv=16&num_heads=2&d_ff=48&vocab_size=90",
            "2x16:int64,2x16:int64,2x16:int64",
        ),
        (
            "vit?num_hidden_layers=1&hidden_size=32&num_attention_heads=2&intermediate_size=48&image_size=48&patch_size=16",
            "2x3x48x48",
        ),
        (
            "whisper?encoder_layers=1&decoder_layers=1&d_model=32&encoder_attention_heads=2&decoder_attention_heads=2&head=base"
            "&max_source_positions=20&num_mel_bins=8",
            "2x8x40",
        ),
    ],
)
def test_models_of_transformers_by_their_configuration(source: str, expected: str) -> None:
    model = SourceRecipe(parse(f"transformers:{source}"), "").make().model
    specs = specs_for(model, source)
    assert specs_text(specs).startswith(expected)
    model(*tensors_for(model, specs))


def test_when_nothing_works_it_is_said_what_forward_wants() -> None:
    with pytest.raises(
        BadInput,
        match=r"'mine' are unknown: its forward takes alpha, beta, and no guess worked \(never\); .* as in 2x16,2x16",
    ):
        specs_for(Nothing(), "mine")


def test_given_shapes_are_taken_and_ids_stay_below_the_vocabulary() -> None:
    model = Named()
    specs = specs_for(model, "mine", "3x40,3x7,3x1")
    ids, features, mask = tensors_for(model, specs)
    assert (ids.dtype, features.dtype) == (torch.int64, torch.float32)
    assert int(ids.max()) == 8
    assert bool((mask == 1).all())
    assert [tuple(one.shape) for one in tensors_for(model, specs, batch=5)] == [(5, 40), (5, 7), (5, 1)]
    assert parse_inputs("2x3:float16")[0].dtype == torch.float16


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


class WithPositions(nn.Module):
    """An embedding comes first, and does not get the input."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = nn.Embedding(8, 12)
        self.layer = nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.marks(torch.arange(len(x)))  # type: ignore[no-any-return]


def test_a_shape_is_of_ids_only_where_forward_takes_ids() -> None:
    (x,) = specs_for(WithPositions(), "WithPositions", "4x12")
    assert x.dtype is None
    (ids,) = specs_for(nn.Sequential(nn.Embedding(8, 12), nn.Linear(12, 2)), "Ids", "4x12")
    assert ids.dtype is torch.int64


def test_a_model_of_the_workspace_gets_them_where_it_is_and_as_it_is(place: Place) -> None:
    place.workspace.add("mine", nn.Linear(3, 2).to("vgpu:1", torch.float64), Extras(source="net:make"))
    assert "2×3 float64 on vgpu:1" in place.do(Forward(target="mine")).answer.words
    extras = place.workspace.extras("mine")
    assert extras.guessed == "2x3", "it is not guessed again"
    extras.inputs = "5x4x3"
    assert "5×4×3 float64 on vgpu:1" in place.do(Backward(target="mine")).answer.words
    assert [one.shape for one in sampled(nn.Linear(3, 2), "mine", extras)] == [(5, 4, 3)]


def test_shapes_that_were_given_on_opening_are_used(place: Place) -> None:
    place.do(OpenModel(source="torch.nn:Linear?in_features=3&out_features=2", inputs="7x3", name="mine"))
    assert "7×3 float32" in place.do(Forward(target="mine")).answer.words


@pytest.mark.parametrize(
    "model", [Named(), nn.LSTM(6, 4), nn.Linear(3, 2).to(torch.bfloat16)], ids=lambda one: type(one).__name__
)
def test_a_script_gets_the_very_values_by_their_shapes_and_dtypes(model: nn.Module) -> None:
    here = sampled(model, "mine", Extras())
    shapes = ",".join(f"{'x'.join(map(str, one.shape))}:{str(one.dtype).removeprefix('torch.')}" for one in here)
    there = sample_inputs(model, shapes)
    assert all(torch.equal(one, two) and one.dtype == two.dtype for one, two in zip(here, there, strict=True))


@dataclass
class Answered:
    logits: Tensor
    more: dict[str, tuple[Tensor, ...]]
    note: str = "no tensor"


def test_outputs_that_are_dataclasses_and_dictionaries() -> None:
    one, two = torch.ones(2, requires_grad=True), torch.ones(3)
    output = Answered(two, {"all": (one, two)})
    assert first_tensor(output) is two
    found = total([output, None, {"again": one}])
    assert found is not None
    assert found.item() == 4.0
    assert first_tensor(Answered) is None


def test_a_forward_that_calls_sys_exit_has_not_run() -> None:
    class Leaves(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            raise SystemExit(0)

    with pytest.raises(RunFailed, match=r"it called sys.exit\(0\)"):
        run(Leaves(2, 2), "", [torch.ones(2)])
