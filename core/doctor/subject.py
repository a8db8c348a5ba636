"""The model under examination: a copy of one that the caller holds, its move to the device as its user would do it; and
the devices of an examination, virtual ones made for it. The doctor's process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.nvml.library import free_bytes
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.working import Failure, definition_of, failure_of, out_of_memory
from devexplorer.core.models import (
    Builder,
    UnknownInputs,
    assigned,
    deep_copy,
    dispatched,
    endless,
    error_text,
    is_irregular,
    is_lazy,
    is_uninitialised,
    named_modules,
    specs_for,
    split_by_hand,
    tensors_for,
)
from devexplorer.core.models.samples.registry import InputSpec, specs_text
from devexplorer.core.models.walk import computed
from devexplorer.core.records import DeviceInfo, DoctorRequest
from devexplorer.core.virtual.backend import add_virtual_gpus, installed, move_lazily, swapping
from devexplorer.core.virtual.cuda.on_cpu import OnCpu

DEFAULT = "2x Tesla T4"
"""Virtual GPUs where there is no other GPU: two, so that code that names the second one works as well."""


class Devices(NamedTuple):
    """What an examination has to work with."""

    chosen: DeviceInfo
    """Where the model goes."""
    cards: int
    """How many cards code that asks for CUDA sees."""
    imitated: bool
    """Whether those are virtual GPUs, rather than CUDA's own."""


def chosen(request: DoctorRequest) -> Devices:
    """Make the virtual GPUs that are wanted and choose the device. Raises `BadInput`, `Unavailable`."""
    virtual = request.wants_virtual
    gpus = [device for device in _registry().usable() if device != "cpu"]
    if request.virtual or not [device for device in gpus if device.startswith("vgpu") or not virtual]:
        try:
            add_virtual_gpus(request.virtual or DEFAULT, request.visible)
        except Unavailable as error:
            if virtual:
                raise
            if not request.device.strip():
                raise Unavailable(f"{error}; --device cpu examines it on the CPU") from error
    return picked(request.device)


def picked(device: str) -> Devices:
    """The device of that name among those there are; empty: the first GPU that is not virtual, or else `vgpu:0`. Raises
    `BadInput`, `DoesNotFit`."""
    registry = _registry()
    usable = registry.usable()
    gpus = [item for item in usable if item != "cpu"]
    first = next((item for item in gpus if not item.startswith("vgpu")), "vgpu:0")
    info = registry.info(registry.choose(device or first))
    registry.backend(info.id).free_bytes(info.id)  # no room for a CUDA context is not the model's fault
    real = sum(item.startswith("cuda") for item in usable)
    imitated = info.simulated or not real
    return Devices(info, sum(item.startswith("vgpu") for item in usable) if imitated else real, imitated)


def _registry() -> DeviceRegistry:
    real, machine = TorchBackend(free_of=free_bytes), installed()
    return DeviceRegistry([real] if machine is None else [real, machine])


THE_MOVE = "the move"


def moved(
    model: nn.Module, info: DeviceInfo, dtype: torch.dtype | None, collector: FindingCollector
) -> nn.Module | None:
    """The model where it was told to go; None when it did not get there, which is reported then.

    What accelerate has dispatched stays where its hooks want it, and what its maker split over several cards as it is.
    """
    if dispatched(named_modules(model)) is not None or split_by_hand(model):
        return model
    own = next((kind for kind in type(model).__mro__ if "to" in vars(kind)), nn.Module)
    to: Any = model.to
    try:
        with swapping():
            if own is nn.Module and is_lazy(model):
                return move_lazily(model, info.id, dtype)
            with _kept_back(model, dtype) if info.simulated else nullcontext():
                result = to(info.id) if dtype is None else to(info.id, dtype)
    except (Exception, SystemExit) as error:
        _note(failure_of(error, model, info.id), model, info, collector)
        return None
    if isinstance(result, nn.Module):
        return result
    kind = type(model).__name__
    collector.add(
        "fails-on-device",
        f"`{kind}.to` returns {'nothing' if result is None else f'a {type(result).__name__}'}, so that `model ="
        " model.to(device)` loses the model.",
        "Let it end with `return self`, as nn.Module.to does.",
        path="",
        place=definition_of(vars(own)["to"]),
    )
    return model


@contextmanager
def _kept_back(model: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """What a virtual GPU cannot hold stays on the CPU: sparse and nested tensors. On a card it would move like the
    rest."""
    held: list[tuple[dict[str, Any], str, Tensor]] = []
    for _, module in named_modules(model):
        for register in (module._parameters, module._buffers):
            for name, tensor in register.items():
                if tensor is not None and not is_uninitialised(tensor) and is_irregular(tensor):
                    held.append((register, name, tensor))
                    register[name] = None
    try:
        yield
    finally:
        for kept, name, tensor in held:
            cast = dtype is not None and tensor.is_floating_point() and not isinstance(tensor, nn.Parameter)
            kept[name] = tensor.to(dtype) if cast else tensor


def copied(model: nn.Module) -> nn.Module:
    """A deep copy, in which such weights have no history either: what has one is refused."""
    made: nn.Module = deep_copy(model, {id(value): value.detach().clone() for _, _, value in computed(model)})
    return made


def _note(failure: Failure, model: nn.Module, info: DeviceInfo, collector: FindingCollector) -> None:
    call = f'`{type(model).__name__}.to("{info.id}")`'
    if failure.kind in ("imitation", "host"):
        collector.not_checked(THE_MOVE, f"{call} did not work: {failure.description}", failure.place)
        return
    if failure.kind == "memory":
        message, fix = out_of_memory(failure, info, "The model alone")
    elif failure.kind == "values":
        message = (
            f"{call} raises {failure.description}: its tensors are on `meta` and have no values that could be moved."
        )
        fix = (
            f'Give them memory with `model.to_empty(device="{info.id}")` and load their values, or make the model on'
            " the CPU."
        )
    elif issubclass(failure.error, RecursionError) and (loop := endless(model)) is not None:
        owner, name = loop
        message = (
            f"`{name}` of {type(owner).__name__} is a module that holds this {type(owner).__name__}: in registered"
            " modules that hold each other, .to(), .train() and .apply() find no end (RecursionError)."
        )
        fix = f'Keep it out of the register, object.__setattr__(self, "{name}", …), or pass what is needed to forward.'
        failure = failure._replace(place=assigned(type(owner), name))
    else:
        message = f"{call} raises {failure.description}."
        fix = "The override should only place tensors and call `super()`."
    collector.add("fails-on-device", message, fix, path=failure.path, place=failure.place)


class CopyBuilder:
    """Copies a model that exists; the model itself is left alone."""

    seeded = False

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self.title = type(model).__name__

    def build(self, seed: int) -> nn.Module:
        """See `Builder`."""
        try:
            return copied(self._model)
        except Exception as error:
            raise BadInput(
                f"{self.title} cannot be copied ({error_text(error)}); name the code that makes it instead:"
                f" 'net.py:{self.title}'"
            ) from error

    def build_on_cpu(self, seed: int) -> nn.Module:
        """See `Builder`."""
        with swapping():
            return self.build(seed).to("cpu")

    def specs(self) -> None:
        """Only the model can tell."""


def inputs_for(builder: Builder, model: nn.Module, given: str, seed: int) -> tuple[list[Tensor], Sequence[InputSpec]]:
    """What forward gets, on the CPU, in the model's dtype where none was said; and what was said or guessed.

    A guess is tried where everything is on the CPU, so that a device in the code does not spoil it: first on copies of
    this model, then on a second one whose code sees only the CPU. Raises `BadInput`, `UnknownInputs` where no guess
    worked.
    """
    specs: Sequence[InputSpec] | None = None if given.strip() else builder.specs()
    if specs is None:
        with OnCpu():
            try:
                specs = specs_for(model, builder.title, given, values=True)
            except UnknownInputs:
                specs = specs_for(builder.build_on_cpu(seed), builder.title, given, values=True)
    with torch.device("cpu"):  # whatever the default device is now
        return tensors_for(model, specs, seed=seed), specs


def text_of_tensors(given: Sequence[Tensor]) -> str:
    """Tensors as `--input` takes them; the dtype is left out where it is the usual one."""
    usual = torch.get_default_dtype()
    return specs_text(InputSpec(tuple(item.shape), None if item.dtype == usual else item.dtype) for item in given)
