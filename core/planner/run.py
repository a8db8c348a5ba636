"""One run of a model's step on measuring GPUs: what a user's own loop would do, with everything noted. In the planner's
process.

Training is the usual loop: `optimizer.zero_grad()`, `output = model(...)`, `loss = ...`, `loss.backward()`,
`optimizer.step()`, in which `output` and `loss` live until the next forward has replaced them. The loss is the sum of
the outputs, or what the model returns as one. It is done twice, so that the second step finds the optimizer's state and
those outputs as every later one does. Inference is one forward under `no_grad`.
Optimizers run in the way that PyTorch chooses on CUDA (`foreach`: one kernel for all parameters, with temporary tensors
for all of them at a time)."""

from __future__ import annotations

import functools
import gc
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from devexplorer.core.base import BadInput
from devexplorer.core.benchmark.matmul import tf32_products
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.profiles import Profile, load_profiles
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.models import (
    cast_of,
    clone_model,
    deep_copy,
    first_tensor,
    floating_dtype,
    is_irregular,
    make_optimizer,
    no_collections,
    size_of,
    state_tensors,
    total,
)
from devexplorer.core.models.run import run
from devexplorer.core.models.samples.registry import InputSpec
from devexplorer.core.planner.experts import equal_shares
from devexplorer.core.planner.measuring import VALUES_BYTES, Measuring
from devexplorer.core.planner.subject import Subject, run_on_cards
from devexplorer.core.planner.trace import Trace
from devexplorer.core.split.blocks import is_stack, own_tensors
from devexplorer.core.split.crossings import DeviceCrossings
from devexplorer.core.virtual.backend import backward_guard, meta_empty, swapping
from devexplorer.core.virtual.operators.kernels import taken_apart
from devexplorer.core.virtual.operators.work import module_calls
from devexplorer.core.virtual.torch_api.module import keeping_casts

# Lets a model compute the activations of its repeated blocks again in backward instead of keeping them. In the
# planner's process.


def checkpoint_blocks(title: str, model: nn.Module) -> None:
    """Put `torch.utils.checkpoint` around each of them. Raises `BadInput` where the model repeats none.

    Models of transformers have their own switch for it; elsewhere blocks are the layers of stacks, the outermost
    ones.
    """
    if getattr(model, "supports_gradient_checkpointing", False):
        if getattr(getattr(model, "config", None), "use_cache", False):
            # transformers does so too, and says it in the log
            model.config.use_cache = False  # type: ignore[union-attr]
        newer: Any = getattr(model, "activation_checkpointing_enable", None)
        older: Any = getattr(model, "gradient_checkpointing_enable", None)
        if newer is not None:
            newer({"use_reentrant": False})
            return
        if older is not None:
            older(gradient_checkpointing_kwargs={"use_reentrant": False})
            return
    blocks = list(repeated(model))
    if not blocks:
        raise BadInput(f"'{title}' repeats no block, so there is nothing to put checkpoints around")
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def repeated(model: nn.Module) -> Iterator[nn.Module]:
    """The layers of the outermost stacks, each once."""
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        module = waiting.pop()
        if not is_stack(module):
            waiting += module.children()
            continue
        for layer in module.children():
            if id(layer) not in seen and any(True for _ in layer.children()):
                seen.add(id(layer))
                yield layer


TRAINING_STEPS = 2
HOST_BYTES = 2 << 30
"""The most that tensors with values may take on the measuring GPUs."""


@dataclass(frozen=True)
class StepConfig:
    """How the step is done."""

    train: bool = False
    optimizer: str = "adamw"
    """Empty: gradients only."""
    dtype: torch.dtype | None = None
    autocast: torch.dtype | None = None
    checkpointing: bool = False
    channels_last: bool = False
    """Weights of convolutions and inputs with planes lie pixel by pixel (`torch.channels_last`)."""
    tf32: bool = False
    """float32 matrix products in TF32 too."""
    fused_attention: bool = True
    """Attention is one kernel; otherwise products and a softmax, whose scores take memory."""
    zeroed_gradients: bool = False
    """Gradients are set to zero before a step and added to, as `Module.zero_grad` did before PyTorch 2.0."""


@dataclass(frozen=True)
class DeviceMap:
    """Which card each tensor of the subject's model is on; empty: all on the first."""

    profiles: tuple[Profile, ...]
    cards: tuple[tuple[int, int], ...] = ()
    """`id()` of a parameter or buffer, and the index of its card."""


class OnlyWithValues(Exception):
    """The step failed on tensors without values; its cause says how."""


def run_step(
    subject: Subject, config: StepConfig, batch: int, device_map: DeviceMap, *, values: bool = False
) -> tuple[Trace, ...]:
    """A trace per card. `values`: the model's and the inputs' values are really there, which costs the time and memory
    of the CPU.

    Raises `OnlyWithValues` when the step failed without them, else what the model raised; `BadInput` for what cannot be
    trained.
    """
    loaded = len(sys.modules)
    traces = _ran(subject, config, batch, device_map, values=values)
    # Where something was imported during the run (torch does so in the first operation of some kinds), that can hold
    # frames, and the tensors in them, until the next collection: another run is as all later ones.
    return traces if len(sys.modules) == loaded else _ran(subject, config, batch, device_map, values=values)


def warm() -> None:
    """Take a small step, so that what torch imports in the first one of a process is there, and no large one has to be
    run again."""
    layer = Subject("a layer", nn.Linear(8, 8, device="meta"), (InputSpec((1, 8)),), False)
    run_step(layer, StepConfig(train=True), 1, DeviceMap((next(iter(load_profiles().values())),)))


def _ran(subject: Subject, config: StepConfig, batch: int, device_map: DeviceMap, *, values: bool) -> tuple[Trace, ...]:
    cards = Measuring(device_map.profiles, HOST_BYTES if values else None)
    gc.collect()  # no collection happens during a step: what is alive then does not depend on what ran before
    with (
        no_collections(),
        uncompiled(),
        module_calls(cards.module_called),
        tf32_products() if config.tf32 else nullcontext(),
        nullcontext() if config.fused_attention else taken_apart(),
        nullcontext() if values else equal_shares(subject.model),
    ):
        try:
            if values:
                model, inputs = _with_values(subject, config, batch, cards)
            else:
                model, inputs = _without_values(subject, config, batch, cards, device_map)
            with run_on_cards(len(device_map.profiles)) if subject.imitated else nullcontext():
                _steps(subject, config, cards, model, inputs, split=len(device_map.profiles) > 1, named=values)
        except BadInput:
            raise
        except (Exception, SystemExit) as error:
            if values:
                raise
            raise OnlyWithValues from error
        traces = cards.traces()
        del model, inputs
    return traces


def _without_values(
    subject: Subject, config: StepConfig, batch: int, cards: Measuring, device_map: DeviceMap
) -> tuple[nn.Module, list[Tensor]]:
    where = dict(device_map.cards)
    made: dict[int, Tensor] = {}
    for tensor in _as_moved(subject.model):
        if is_irregular(tensor):  # no virtual GPU holds it: its bytes are counted, and it stays where it is
            cards.hold(meta_empty((size_of(tensor),), torch.uint8, cards.devices[where.get(id(tensor), 0)]))
            made[id(tensor)] = tensor
        elif id(tensor) not in made:
            made[id(tensor)] = meta_empty(
                tensor.shape, cast_of(tensor.dtype, config.dtype), cards.devices[where.get(id(tensor), 0)]
            )
    model = clone_model(subject.model, lambda tensor: made.pop(id(tensor)))
    floating, generator = floating_dtype(model), torch.Generator().manual_seed(0)
    return model, [_input(spec, floating, generator, cards.devices[0]) for spec in subject.inputs(batch)]


def _input(spec: InputSpec, floating: torch.dtype, generator: torch.Generator, device: str) -> Tensor:
    """With values where it is small: a model may look at them, or at a mask that it makes of them."""
    dtype = spec.dtype or floating
    if math.prod(spec.shape) * dtype.itemsize <= VALUES_BYTES:
        return spec.tensor(floating, generator).to(device)
    return meta_empty(spec.shape, dtype, device)


def _as_moved(module: nn.Module) -> Iterator[Tensor]:
    """Parameters and buffers in the order in which `Module.to` moves them: what is inside first."""
    for child in module.children():
        yield from _as_moved(child)
    yield from own_tensors(module)


def _with_values(subject: Subject, config: StepConfig, batch: int, cards: Measuring) -> tuple[nn.Module, list[Tensor]]:
    model: nn.Module = deep_copy(subject.model)
    with swapping():
        model = model.to(cards.devices[0], config.dtype)
    generator, floating = torch.Generator().manual_seed(0), floating_dtype(model)
    return model, [spec.tensor(floating, generator).to(cards.devices[0]) for spec in subject.inputs(batch)]


def _steps(
    subject: Subject,
    config: StepConfig,
    cards: Measuring,
    model: nn.Module,
    inputs: list[Tensor],
    *,
    split: bool,
    named: bool,
) -> None:
    cards.label(model.parameters(), "parameters")
    cards.label(model.buffers(), "buffers")
    model.train(config.train)
    for layer in sparse_layers(model):
        layer.sparse = False
    if config.channels_last:
        inputs = _channels_last(model, inputs)
    if config.checkpointing:
        checkpoint_blocks(subject.title, model)
    if split:
        DeviceCrossings(model, DeviceRegistry([TorchBackend(), cards.machine])).attach()
    cards.input_bytes = sum(item.nbytes for item in inputs)
    call = functools.partial(_called, cards, model, named=named)
    if not config.train:
        with torch.no_grad(), autocast(config.autocast):
            cards.step_begins()
            call(*inputs)
        cards.step_ends()
        return
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise BadInput(f"'{subject.title}' has no parameters to train; plan for its forward")
    optimizer = make_optimizer(config.optimizer, trained, lr=1e-6, foreach=True) if config.optimizer else None
    output: Any = None
    loss: Tensor | None = None
    for _ in range(TRAINING_STEPS):
        cards.step_begins()
        model.zero_grad(set_to_none=not config.zeroed_gradients)
        with autocast(config.autocast):
            output = call(*inputs)
            loss = _loss(subject, output)
        with backward_guard():
            loss.backward()
        cards.label((parameter.grad for parameter in trained), "gradients")
        cards.optimizer_begins()
        if optimizer is not None:
            optimizer.step()
            cards.label((value for _, _, value in state_tensors(optimizer)), "optimizer")
        cards.step_ends()


def sparse_layers(model: nn.Module) -> list[Any]:
    """Embeddings whose gradients are sparse: no virtual GPU holds those, so dense ones are planned for."""
    layers: list[Any] = [layer for layer in model.modules() if isinstance(layer, (nn.Embedding, nn.EmbeddingBag))]
    return [layer for layer in layers if layer.sparse]


def _channels_last(model: nn.Module, inputs: list[Tensor]) -> list[Tensor]:
    """Rearrange the weights in place; returns the inputs, rearranged where they have planes. Nothing of it belongs to
    the step."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        return [item.contiguous(memory_format=torch.channels_last) if item.dim() == 4 else item for item in inputs]


@contextmanager
def autocast(dtype: torch.dtype | None) -> Iterator[None]:
    """Nothing for None; else as on CUDA, where the casts of weights are kept until its end."""
    with nullcontext() if dtype is None else torch.autocast("vgpu", dtype), keeping_casts():
        yield


def _called(cards: Measuring, model: nn.Module, *inputs: Tensor, named: bool) -> Any:
    """The output. With `named`, an error says in which layer it was."""
    output = run(model, "", inputs) if named else model(*inputs)
    first = None if own_loss(output) is not None else first_tensor(output)
    cards.output_bytes = 0 if first is None else first.nbytes
    return output


def own_loss(output: Any) -> Tensor | None:
    """The loss that a model returns: a number with a gradient that is all of the output, is called `loss` or comes
    first, as in models of transformers; None where it returns none."""
    if isinstance(output, Mapping):
        output = output.get("loss")
    elif isinstance(output, (tuple, list)) and output:
        output = output[0]
    elif not isinstance(output, Tensor):
        output = getattr(output, "loss", None)
    is_loss = isinstance(output, Tensor) and output.numel() == 1 and output.dim() == 0 and output.requires_grad
    return output if is_loss else None


def _loss(subject: Subject, output: Any) -> Tensor:
    """What the model returns as its loss, else the sum of what it returns."""
    loss = own_loss(output)
    if loss is None:
        loss = total(output)
    if loss is None:
        raise BadInput(
            f"the output of '{subject.title}' does not depend on anything that requires a gradient; plan for its"
            " forward"
        )
    return loss


def uncompiled() -> AbstractContextManager[None]:
    """What torch.compile was to compile runs as it is: no compiler knows a measuring GPU. Nothing unless it is
    imported."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
