"""One run of a model's step on virtual GPUs that measure: what a user's own loop would do, with every block of memory
and every operation noted. In the planner's process.

The measuring GPUs replace this process's virtual ones, so they belong in their own process (or a test that has
reset the machine).

Training is the usual loop: `optimizer.zero_grad()`, `output = model(...)`, `loss = ...`, `loss.backward()`,
`optimizer.step()`, in which `output` and `loss` live until the next forward has replaced them. The loss is the sum of
the outputs, or what the model returns as one. It is done twice, so that the second step finds the optimizer's state and
those outputs as every later one does. Inference is one forward under `no_grad`.
Optimizers run in the way that PyTorch chooses on CUDA (`foreach`: one kernel for all parameters, with temporary tensors
for all of them at a time).
"""

from __future__ import annotations

import functools
import gc
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
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
from devexplorer.core.planner.subject import Subject, equal_shares
from devexplorer.core.planner.trace import UNLIMITED, Copied, Trace
from devexplorer.core.split.crossings import DeviceCrossings
from devexplorer.core.split.planner import is_stack, own_tensors
from devexplorer.core.virtual.backend import backward_guard, install, meta_empty, swapping
from devexplorer.core.virtual.cuda.emulation import CudaEmulation
from devexplorer.core.virtual.device.cost import HostCall, Roofline, Work
from devexplorer.core.virtual.device.memory import Block, CachingAllocator, OutOfDeviceMemoryError, round_up
from devexplorer.core.virtual.operators.kernels import taken_apart
from devexplorer.core.virtual.operators.work import module_calls
from devexplorer.core.virtual.torch_api.module import keeping_casts

VALUES_BYTES = 16 << 20
"""Inputs up to this size have values, and so has what is made of them without parameters: positions and masks, which
models look at."""


class MeasuringMemory(CachingAllocator):
    """Gives every request its own block and notes it; an address is never used twice, so it identifies a block."""

    def __init__(self, index: int, limit_bytes: int = UNLIMITED) -> None:
        """`limit_bytes`: the most that may be taken, for tensors with values, whose memory is the host's."""
        super().__init__(limit_bytes, 0, index)
        self.sizes: list[int] = []
        self.events: list[int] = []
        self.state_at: int | None = None
        """Where in `events` the first step of the optimizer begins."""
        self.rest_at: int | None = None
        """Where in `events` the last step ends."""
        self.kinds: dict[int, str] = {}
        """Number of a block -> what it is for."""
        self._numbers: dict[int, int] = {}
        self._free_address = (index + 1) << 44

    def allocate(self, nbytes: int) -> Block:
        """Note a block that is taken; a request of 0 bytes takes nothing."""
        if nbytes <= 0:
            return Block(0, 0, small=True)
        with self._lock:
            size = round_up(nbytes)
            if self._allocated.current + size > self.capacity_bytes:
                raise OutOfDeviceMemoryError("the values need more memory than this machine has for them")
            block = Block(self._free_address, size, small=False)
            block.free, block.requested = False, nbytes
            self._free_address += size
            self._numbers[block.address] = len(self.sizes)
            self.events.append(len(self.sizes))
            self.sizes.append(nbytes)
            self._allocated.add(size)
        return block

    def free(self, block: Block) -> None:
        """Note that a block is given back. Called by finalizers, wherever those happen to run: it never blocks."""
        if block.size:
            self.events.append(~self._numbers[block.address])
            self._allocated.take(block.size)

    def number(self, address: int) -> int:
        """Of the block at this address."""
        return self._numbers[address]


class MeasuringRoofline(Roofline):
    """Notes what it is asked for."""

    def __init__(self, profile: Profile) -> None:
        super().__init__(profile)
        self.work: list[Work] = []
        self.calls: Counter[HostCall] = Counter()
        self.copies: list[Copied] = []

    def seconds(self, *works: Work) -> float:
        """Note kernels."""
        self.work.extend(works)
        return 0.0

    def call_seconds(self, call: HostCall) -> float:
        """Note a call of the host."""
        self.calls[call] += 1
        return 0.0

    def copy_seconds(self, other: Profile | None, nbytes: int) -> float:
        """Note a copy."""
        self.copies.append(Copied(nbytes, None if other is None else other.name))
        return 0.0

    def forget(self) -> None:
        """What was noted."""
        self.work.clear()
        self.calls.clear()
        self.copies.clear()


class Measuring:
    """So many cards, empty."""

    def __init__(self, profiles: Sequence[Profile], limit_bytes: int | None = None) -> None:
        """With `limit_bytes` tensors have values, up to so many bytes on each card; without, as few as possible."""
        machine = install()
        machine.reset()
        self.machine = machine
        self.devices: list[str] = []
        self._memories: list[MeasuringMemory] = []
        self._rooflines: list[MeasuringRoofline] = []
        self._held: list[torch.Tensor] = []
        self.output_bytes = 0
        """Of the first tensor that forward returned."""
        self.input_bytes = 0
        for gpu in machine.add(profiles):
            memory = MeasuringMemory(gpu.index, UNLIMITED if limit_bytes is None else limit_bytes)
            roofline = MeasuringRoofline(gpu.profile)
            gpu.memory, gpu.roofline = memory, roofline
            gpu.values_bytes = VALUES_BYTES if limit_bytes is None else None
            self.devices.append(gpu.id)
            self._memories.append(memory)
            self._rooflines.append(roofline)

    def hold(self, buffer: Tensor) -> None:
        """Keep the memory of a buffer until the traces are made."""
        self._held.append(buffer)
        self.label([buffer], "buffers")

    def _block(self, tensor: Tensor) -> tuple[MeasuringMemory, int] | None:
        """The memory of its card, and the number of its block there; None: it is elsewhere."""
        held = getattr(tensor.untyped_storage(), "_vgpu", None)
        if held is None or not held.block.size or not isinstance(held.gpu.memory, MeasuringMemory):
            return None
        return held.gpu.memory, held.gpu.memory.number(held.block.address)

    def label(self, tensors: Iterable[Tensor | None], kind: str) -> None:
        """Say what the memory of these tensors is for; what was said first counts."""
        for tensor in tensors:
            if tensor is not None and not is_irregular(tensor) and (block := self._block(tensor)) is not None:
                memory, number = block
                memory.kinds.setdefault(number, kind)

    def block_number(self, tensor: Tensor) -> int:
        """The number of its block in the trace of its card."""
        block = self._block(tensor)
        assert block is not None
        return block[1]

    def step_begins(self) -> None:
        """Forget the work so far: what comes is the step whose time counts."""
        for roofline in self._rooflines:
            roofline.forget()

    def module_called(self) -> None:
        """A module was called; the host is one, so that it counts on the first card."""
        self._rooflines[0].call_seconds(HostCall.MODULE)

    def optimizer_begins(self) -> None:
        """The first time, note where."""
        for memory in self._memories:
            if memory.state_at is None:
                memory.state_at = len(memory.events)

    def step_ends(self) -> None:
        """Note where: what is alive then stays."""
        for memory in self._memories:
            memory.rest_at = len(memory.events)

    def traces(self) -> tuple[Trace, ...]:
        """What happened on each card."""
        traces = []
        for gpu, memory, roofline in zip(self.machine.gpus, self._memories, self._rooflines, strict=True):
            trace = Trace(
                np.array(memory.sizes, dtype=np.int64),
                np.array(memory.events, dtype=np.int64),
                dict(memory.kinds),
                Counter(roofline.work),
                dict(roofline.calls),
                Counter(roofline.copies),
                memory.state_at,
                memory.rest_at,
                self.output_bytes,
                self.input_bytes,
                gpu.attention_by_card,
            )
            traces.append(trace)
        return tuple(traces)


# Lets a model compute the activations of its repeated blocks again in backward instead of keeping them. In the
# planner's process.


def checkpoint_blocks(title: str, model: nn.Module) -> None:
    """Put `torch.utils.checkpoint` around each of them. Raises `BadInput` where the model repeats none.

    Models of transformers have their own switch for it; elsewhere blocks are the layers of stacks, the outermost
    ones.
    """
    if getattr(model, "supports_gradient_checkpointing", False):
        config = getattr(model, "config", None)
        if getattr(config, "use_cache", False):  # transformers does so too, and says it in the log
            config.use_cache = False  # type: ignore[union-attr]
        newer: Any = getattr(model, "activation_checkpointing_enable", None)
        if newer is not None:
            newer({"use_reentrant": False})
            return
        older: Any = getattr(model, "gradient_checkpointing_enable", None)
        if older is not None:
            older(gradient_checkpointing_kwargs={"use_reentrant": False})
            return
    blocks = repeated(model)
    if not blocks:
        raise BadInput(f"'{title}' repeats no block, so there is nothing to put checkpoints around")
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def repeated(model: nn.Module) -> list[nn.Module]:
    """The layers of the outermost stacks, each once."""
    found: dict[int, nn.Module] = {}
    waiting = [model]
    while waiting:
        module = waiting.pop()
        if not is_stack(module):
            waiting += module.children()
            continue
        for layer in module.children():
            if list(layer.children()):
                found[id(layer)] = layer
    return list(found.values())


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
            with CudaEmulation(len(device_map.profiles)) if subject.imitated else nullcontext():
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
        device = cards.devices[where.get(id(tensor), 0)]
        if is_irregular(tensor):  # no virtual GPU holds it: its bytes are counted, and it stays where it is
            cards.hold(meta_empty((size_of(tensor),), torch.uint8, device))
            made[id(tensor)] = tensor
        elif id(tensor) not in made:
            made[id(tensor)] = meta_empty(tensor.shape, cast_of(tensor.dtype, config.dtype), device)
    model = clone_model(subject.model, lambda tensor: made.pop(id(tensor)))
    floating, generator = floating_dtype(model), torch.Generator().manual_seed(0)
    inputs = []
    for spec in subject.inputs(batch):
        dtype = spec.dtype or floating
        if math.prod(spec.shape) * dtype.itemsize <= VALUES_BYTES:  # a model may look at them, or at a mask of them
            inputs.append(spec.tensor(floating, generator).to(cards.devices[0]))
        else:
            inputs.append(meta_empty(spec.shape, dtype, cards.devices[0]))
    return model, inputs


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

    def forward() -> Any:
        """The output. Where everything has values, an error says in which layer it was."""
        output = run(model, "", inputs) if named else model(*inputs)
        first = None if own_loss(output) is not None else first_tensor(output)
        cards.output_bytes = 0 if first is None else first.nbytes
        return output

    if not config.train:
        with torch.no_grad(), autocast(config.autocast):
            cards.step_begins()
            forward()
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
            output = forward()
            found = own_loss(output)
            if found is None:
                found = total(output)
            if found is None:
                raise BadInput(
                    f"the output of '{subject.title}' does not depend on anything that requires a gradient; plan for"
                    " its forward"
                )
            loss = found
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


def own_loss(output: Any) -> Tensor | None:
    """The loss that a model returns: a number with a gradient that is all of the output, is called `loss` or comes
    first, as in models of transformers; None where it returns none."""
    if isinstance(output, Mapping):
        output = output.get("loss")
    elif isinstance(output, (tuple, list)) and output:
        output = output[0]
    elif not isinstance(output, Tensor):
        output = getattr(output, "loss", None)
    if isinstance(output, Tensor) and output.dim() == 0 and output.requires_grad:
        return output
    return None


def uncompiled() -> AbstractContextManager[None]:
    """What torch.compile was to compile runs as it is: no compiler knows a measuring GPU. Nothing unless it is
    imported."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
