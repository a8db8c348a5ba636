"""The sample models, and that building one has no side effects."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from devexplorer.core.base import BadInput
from devexplorer.core.models import samples

pytestmark = pytest.mark.usefixtures("warm_processes")

LARGE = {"vgg11-bn", "vgg16-bn"}
SMALL = [name for name in samples.recipes() if name not in LARGE]


@pytest.mark.parametrize("name", SMALL)
def test_a_recipe_builds_and_runs_on_its_sample_input(name: str) -> None:
    recipe = samples.find(name)
    assert recipe.summary
    assert "\n" not in recipe.summary
    model = samples.build(name).eval()
    inputs = recipe.sample()
    output = model(*inputs)
    assert output.shape[0] == recipe.batch == inputs[0].shape[0]
    assert torch.isfinite(output).all()


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("mlp", 7_946),
        ("lenet", 61_706),
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("vgg11-bn", 132_868_840),
        ("vgg16-bn", 138_365_992),
    ],
)
def test_published_parameter_counts(name: str, parameters: int) -> None:
    assert sum(p.numel() for p in samples.meta(name).parameters()) == parameters


def test_vgg_computes_a_thousand_classes() -> None:
    assert samples.meta("vgg16-bn")(torch.empty(1, 3, 224, 224, device="meta")).shape == (1, 1000)


@pytest.mark.parametrize("name", ["mlp", "custom-layers", "transformer", "lstm"])
def test_a_seed_gives_the_same_values_and_leaves_the_global_generator_alone(name: str) -> None:
    state = torch.get_rng_state()
    first, again, other = samples.build(name, 3), samples.build(name, 3), samples.build(name, 4)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))
    assert all(
        torch.equal(a, b)
        for a, b in zip(samples.find(name).sample(seed=1), samples.find(name).sample(seed=1), strict=True)
    )
    assert torch.equal(torch.get_rng_state(), state)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(BadInput, match=r"did you mean .*vgg16-bn"):
        samples.find("vgg16")
    with pytest.raises(BadInput, match="there are mlp"):
        samples.build("qqqq")
    assert samples.find(" VGG16_BN ").name == "vgg16-bn"


def test_own_sequential_equals_torch_s() -> None:
    own, torchs = samples.build("my-sequential", 1), samples.build("mlp", 1)
    (x,) = samples.find("mlp").sample()
    assert torch.equal(own(x), torchs(x))
    assert list(own.state_dict()) == list(torchs.state_dict())


def test_the_parallel_block_concatenates() -> None:
    model = samples.build("parallel").eval()
    (x,) = samples.find("parallel").sample()
    block = model.get_submodule("0")
    assert torch.equal(block(x), torch.cat((model.get_submodule("0.left")(x), model.get_submodule("0.right")(x)), -1))


def test_a_plain_list_registers_nothing_and_a_module_list_does() -> None:
    assert list(samples.build("list-pitfall").parameters()) == []
    assert {name.split(".")[0] for name, _ in samples.build("module-list").named_parameters()} == {"layers", "head"}
    assert isinstance(samples.build("module-list").get_submodule("layers"), nn.ModuleList)


def test_a_repeated_block_has_its_parameters_once() -> None:
    names = [name for name, _ in samples.build("repeated").named_parameters()]
    assert len([name for name in names if name.startswith("0.block")]) == 4


def test_the_bilinear_reduction_is_the_sum_it_says() -> None:
    layer = samples.build("custom-layers").get_submodule("2")
    x = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    expected = torch.einsum("ijk,bi,bj->bk", layer.get_parameter("weight"), x, x)
    assert torch.allclose(layer(x), expected, atol=1e-4)


def test_the_centred_layer_has_no_parameters_and_a_mean_of_zero() -> None:
    layer = samples.build("custom-layers").get_submodule("1")
    assert list(layer.parameters()) == []
    assert abs(layer(torch.arange(10.0)).mean().item()) < 1e-6


def test_the_data_pitfall_computes_what_the_layer_without_it_does_and_learns_nothing() -> None:
    pitfall = samples.build("data-pitfall").get_submodule("0")
    layer = samples.build("custom-layers").get_submodule("0")
    layer.load_state_dict(pitfall.state_dict())
    (x,) = samples.find("data-pitfall").sample()
    assert torch.equal(pitfall(x), layer(x))
    assert layer(x).requires_grad
    assert not pitfall(x).requires_grad


def test_the_name_of_a_type_of_transformers_is_answered_with_its_source() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(BadInput, match=r"there is no sample model 'gpt2'; did you mean transformers:gpt2\?$"):
        samples.find("gpt2")
    with pytest.raises(BadInput, match=r"did you mean transformers:xlm-roberta\?$"):
        samples.find("xlm-roberta")
    with pytest.raises(BadInput, match="there are mlp"):
        samples.find("no-type-of-anything")


def test_asking_for_a_type_of_transformers_imports_nothing() -> None:
    code = (
        "import sys; from devexplorer.core.models.samples.registry import type_of_transformers as ask; "
        "print(ask('gpt2'), 'transformers' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert said[1] == "False"
