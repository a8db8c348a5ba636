"""The list of sample models, and what a bare name could mean else; what a sample model is: how it is built, and what
its forward takes. Runs on the jobs thread."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import ClassVar

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput
from devexplorer.core.models.samples import blocks, custom, sequence, vision


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One argument of forward; in a sample model's recipe without the dimension of the batch."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None = None
    """None: the model's own floating dtype."""
    below: int = 2
    """Integers are drawn from 0 up to this, exclusive."""
    ones: bool = False
    """All ones, such as a mask that hides nothing."""

    def tensor(self, floating: torch.dtype, generator: torch.Generator, device: str = "cpu") -> Tensor:
        """Values from the generator; none on `meta`."""
        dtype = self.dtype or floating
        if device == "meta":
            return torch.empty(self.shape, dtype=dtype, device=device)
        if self.ones:
            return torch.ones(self.shape, dtype=dtype)
        if dtype.is_floating_point or dtype.is_complex:
            drawn = torch.complex64 if dtype.is_complex else torch.float32
            return torch.randn(self.shape, generator=generator, dtype=drawn).to(dtype)
        return torch.randint(2 if dtype == torch.bool else self.below, self.shape, generator=generator).to(dtype)

    @property
    def text(self) -> str:
        """The form that `--input` accepts."""
        shape = "x".join(map(str, self.shape)) or "scalar"
        return shape if self.dtype is None else f"{shape}:{str(self.dtype).removeprefix('torch.')}"

    def with_batch(self, batch: int) -> InputSpec:
        """The same with another first dimension; a scalar has none."""
        return replace(self, shape=(batch, *self.shape[1:])) if self.shape else self


def specs_text(specs: Iterable[InputSpec]) -> str:
    """`8x3x224x224,8x16:int64`, as `--input` takes them."""
    return ",".join(spec.text for spec in specs)


@dataclass(frozen=True, slots=True)
class Recipe:
    """One sample model; a `Builder`."""

    seeded: ClassVar[bool] = True
    name: str
    summary: str
    """One line of description."""
    make: Callable[[], nn.Module]
    """Builds it on the CPU with PyTorch's default initial values, drawn from the global generator."""
    inputs: tuple[InputSpec, ...]
    """The arguments of `forward`, without the dimension of the batch."""
    batch: int = 2
    """Size of the batch of a sample input."""

    @property
    def title(self) -> str:
        """Its name for people."""
        return self.name

    def build(self, seed: int) -> nn.Module:
        """Build it on the CPU; the same seed gives the same values, and the global generator is left as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed every accelerator too
            return self.make()

    build_on_cpu = build

    def build_without_values(self) -> nn.Module:
        """The same on `meta`: what it needs can be counted before anything is allocated."""
        with torch.device("meta"):
            return self.make()

    def specs(self, batch: int | None = None) -> tuple[InputSpec, ...]:
        """The arguments of `forward` for a batch."""
        return tuple(replace(spec, shape=(batch or self.batch, *spec.shape)) for spec in self.inputs)

    def sample(self, batch: int | None = None, seed: int = 0) -> tuple[Tensor, ...]:
        """A sample input on the CPU, the same one for the same seed; the global generator is untouched."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(spec.tensor(torch.float32, generator) for spec in self.specs(batch))


_FEATURES = (InputSpec((blocks.FEATURES,)),)
_IMAGE = (InputSpec((3, 224, 224)),)
_TOKENS = (InputSpec((sequence.LENGTH,), torch.int64, sequence.VOCABULARY),)

_RECIPES = (
    Recipe("mlp", "perceptron with one hidden layer, 20 → 256 → 10", blocks.mlp, _FEATURES),
    Recipe("my-sequential", "the same in a Sequential of our own", blocks.my_sequential, _FEATURES),
    Recipe("parallel", "two branches side by side, concatenated", blocks.parallel, _FEATURES),
    Recipe("nested", "blocks inside a block, named with spaces: block 0 to block 3", blocks.nested, _FEATURES),
    Recipe("repeated", "one block that runs three times, its parameters exist once", blocks.repeated, _FEATURES),
    Recipe("module-list", "layers in an nn.ModuleList, which holds them and does not run", blocks.Stack,
           _FEATURES),
    Recipe("list-pitfall", "layers in a plain Python list: nothing is registered, nothing moves", blocks.PlainList,
           _FEATURES),
    Recipe("tied", "one layer in two places: one Parameter, two names", blocks.tied, _FEATURES),
    Recipe("lazy-mlp", "perceptron whose shapes appear at the first forward", blocks.lazy_mlp, _FEATURES),
    Recipe("custom-layers", "own linear, centred layer without parameters, bilinear reduction", custom.custom_layers,
           _FEATURES),
    Recipe("data-pitfall", "own linear that reads its weight through .data: no gradient reaches it",
           custom.data_pitfall, _FEATURES),
    Recipe("noise-pitfall", "noise made in forward without a device: fails everywhere but on the CPU",
           custom.noise_pitfall, _FEATURES),
    Recipe("two-towers", "two towers over two inputs, made for mixed placement", blocks.TwoTowers, _FEATURES * 2),
    Recipe("lenet", "LeNet-5 for 28×28 images, 61,706 parameters", vision.lenet, (InputSpec((1, 28, 28)),)),
    Recipe("vgg11-bn", "VGG-11 with batch norm, 132,868,840 parameters",
           partial(vision.VGG, vision.VGG11), _IMAGE, batch=1),
    Recipe("vgg16-bn", "VGG-16 with batch norm, 138,365,992 parameters",
           partial(vision.VGG, vision.VGG16), _IMAGE, batch=1),
    Recipe("resnet18", "ResNet-18, 11,689,512 parameters",
           partial(vision.ResNet, vision.BasicBlock, (2, 2, 2, 2)), _IMAGE),
    Recipe("resnet50", "ResNet-50, 25,557,032 parameters",
           partial(vision.ResNet, vision.Bottleneck, (3, 4, 6, 3)), _IMAGE),
    Recipe("transformer", "Transformer encoder over tokens, two layers of width 64", sequence.Encoder, _TOKENS),
    Recipe("lstm", "LSTM over tokens, two layers of width 64", sequence.Reader, _TOKENS),
)  # fmt: skip


def recipes() -> dict[str, Recipe]:
    """Every sample model by name, the simplest first."""
    return {recipe.name: recipe for recipe in _RECIPES}


def is_known(name: str) -> bool:
    """Whether there is a sample model of that name."""
    return name.strip().lower().replace("_", "-") in recipes()


def find(name: str) -> Recipe:
    """The recipe of that name; `BadInput` with the nearest names when there is none."""
    known = recipes()
    key = name.strip().lower().replace("_", "-")
    if key in known:
        return known[key]
    near = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
    near = [*filter(None, [type_of_transformers(name)]), *near]
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    raise BadInput(f"there is no sample model '{name}'; {hint}")


def type_of_transformers(name: str) -> str | None:
    """`transformers:gpt2` for `gpt2`, where transformers is installed and has that type; else None.

    It looks at the folders of the library only, and imports nothing.
    """
    kind = name.strip().lower().partition("?")[0]
    folder = re.sub(r"\W", "_", kind)
    try:
        spec = find_spec("transformers")
    except (ImportError, ValueError):  # half imported, or replaced
        return None
    if not folder or spec is None or not spec.submodule_search_locations:
        return None
    file = os.path.join(spec.submodule_search_locations[0], "models", folder, f"configuration_{folder}.py")
    return f"transformers:{kind}" if os.path.isfile(file) else None


def build(name: str, seed: int = 0) -> nn.Module:
    """Build a sample model on the CPU; the same seed gives the same values, and the global generator is left as it
    was."""
    return find(name).build(seed)


def sample_for(model: nn.Module, name: str, seed: int = 0) -> list[Tensor]:
    """A sample input of that recipe, on the device of the model's first parameter and in its dtype."""
    first = next(model.parameters(), None)
    samples = find(name).sample(seed=seed)
    if first is None:
        return list(samples)
    return [sample.to(first.device, first.dtype if sample.is_floating_point() else None) for sample in samples]


def meta(name: str) -> nn.Module:
    """The same model without values (device `meta`): what it needs can be counted before anything is allocated."""
    return find(name).build_without_values()
