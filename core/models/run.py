"""Runs a model forward and backward, and finds out where it went wrong when it does. Runs on the jobs thread.

Hooks note which module is being run and where its operands are, so that an error names the layer; they are removed in
any case.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from devexplorer.core.base import DevExplorerError, first_line
from devexplorer.core.devices.accelerator import is_out_of_memory
from devexplorer.core.isolation.source_location import SourceLocation, raised_at
from devexplorer.core.models.walk import RegisteredIds, device_id, is_uninitialised, named_modules, unregistered
from devexplorer.core.records import Finding


class Operand(NamedTuple):
    """A tensor that takes part in a module's work, and where it is."""

    label: str
    device: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class ModuleFrame:
    """A module that is being run."""

    path: str
    module: nn.Module
    operands: list[Operand]
    produced: list[Operand] = field(default_factory=list)
    """What its parts have returned so far."""


class RunFailed(DevExplorerError):
    """A model's own code, or PyTorch below it, raised. `frame` is the innermost module that was at work."""

    def __init__(
        self, message: str, *, frame: ModuleFrame | None, operands: Sequence[Operand] = (), reason: str = "other"
    ) -> None:
        super().__init__(message)
        self.model_devices: tuple[str, ...] = ()
        """Devices that hold registered tensors of what was run."""
        self.frame = frame
        self.operands = tuple(operands)
        """Everything that met there."""
        self.place: SourceLocation | None = None
        """The line of the model's code where it happened, where one is known."""
        self.finding: Finding | None = None
        """What the placement doctor says about it, where it is about devices."""
        self.reason = reason
        """`devices` (they are not on one device), `container` (a ModuleList was called), `memory`, `other`."""

    @property
    def devices(self) -> list[str]:
        """The devices that met."""
        return list(dict.fromkeys(operand.device for operand in self.operands))


Explain = Callable[[nn.Module, Sequence[Tensor]], Finding | None]
"""Says why a module that ran with these inputs failed for where its operands are; None where it finds nothing."""


def run(
    module: nn.Module,
    path: str,
    inputs: Sequence[Tensor],
    enter: Callable[[nn.Module, str], None] | None = None,
    explain: Explain | None = None,
) -> Any:
    """`module(*inputs)`; raises `RunFailed` with the layer that could not work. `path` is that of the module in its
    model.

    `enter` gets every module that begins its work, and its path. `explain` is asked about a failure that is about
    devices.
    """
    with _watched(module, path, enter) as stack:
        try:
            return module(*inputs)
        except (Exception, SystemExit) as error:
            explained = _explained(error, stack, module)
            explained.place = raised_at(error)
            about_devices = isinstance(error, RuntimeError) and explained.reason != "memory" and "device" in str(error)
            let_go(error)
            if about_devices and explain is not None:
                explained.finding = explain(module, inputs)
            try:
                raise explained from error
            finally:
                del explained  # its traceback holds this frame: a circle would keep the model until the next collection


def let_go(error: BaseException | None) -> None:
    """Frames hold activations, and with them the graph and its memory; those of closures cannot be cleared, so the
    traceback goes too."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        error = error.__context__


@contextmanager
def _watched(root: nn.Module, path: str, told: Callable[[nn.Module, str], None] | None) -> Iterator[list[ModuleFrame]]:
    """Hooks on every module below; the list is the stack of those at work."""
    stack: list[ModuleFrame] = []
    handles = []

    def enter(place: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            stack.append(ModuleFrame(place, module, _operands("input", (args, kwargs))))
            if told is not None:
                told(module, place)

        return hook

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        frame = stack.pop()
        while (
            stack and frame.module is not module
        ):  # a module whose error its caller swallowed has not been left by this door
            frame = stack.pop()
        if stack:
            stack[-1].produced += _operands(f"output of {frame.path}", output)

    try:
        for place, module in root.named_modules(prefix=path):
            handles.append(module.register_forward_pre_hook(enter(place), with_kwargs=True))
            handles.append(module.register_forward_hook(leave))
        yield stack
    finally:
        for handle in handles:
            handle.remove()


def _operands(label: str, values: Any) -> list[Operand]:
    tensors = list(tensors_in(values))
    return [operand(label if len(tensors) == 1 else f"{label} {index}", tensor) for index, tensor in enumerate(tensors)]


def operand(label: str, tensor: Tensor) -> Operand:
    """A tensor's place in words that fit a line."""
    shape = () if is_uninitialised(tensor) else tuple(tensor.shape)
    return Operand(label, device_id(tensor.device), str(tensor.dtype).removeprefix("torch."), shape)


def _explained(error: BaseException, stack: list[ModuleFrame], module: nn.Module) -> RunFailed:
    message = f"it called sys.exit({error})" if isinstance(error, SystemExit) else first_line(error)
    frame = stack[-1] if stack else None
    met = () if frame is None else (*frame.operands, *_own_tensors(frame.module), *frame.produced)
    container = frame is not None and isinstance(frame.module, (nn.ModuleList, nn.ModuleDict))
    if is_out_of_memory(error):
        reason = "memory"
    elif container and isinstance(error, NotImplementedError):
        reason = "container"
    elif isinstance(error, RuntimeError) and len({item.device for item in met}) > 1:
        reason = "devices"
    else:
        reason = "other"
    failed = RunFailed(message, frame=frame, operands=met, reason=reason)
    held = (*module.parameters(), *module.buffers())
    failed.model_devices = tuple(sorted({device_id(tensor.device) for tensor in held}))
    return failed


def failed_backward(error: Exception) -> RunFailed:
    """Why there was no backward; no module is at work then that could be named."""
    failed = RunFailed(
        f"backward: {first_line(error)}", frame=None, reason="memory" if is_out_of_memory(error) else "other"
    )
    failed.place = raised_at(error)
    return failed


def _own_tensors(module: nn.Module) -> list[Operand]:
    """The module's own parameters and buffers, and what it holds unregistered."""
    own = [operand(name, t) for name, t in module.named_parameters(recurse=False)]
    own += [operand(name, t) for name, t in module.named_buffers(recurse=False)]
    for path, thing in unregistered(module, RegisteredIds(named_modules(module))):
        if isinstance(thing, Tensor):
            own.append(operand(f"{path} (not registered)", thing))
        else:
            own += [operand(f"{path}.{name} (not registered)", t) for name, t in thing.named_parameters()]
    return own


def tensors_in(output: Any) -> Iterator[Tensor]:
    """Every tensor in whatever a model was given or has returned: tensors, containers of them, dataclasses, the outputs
    of transformers."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from tensors_in(value)
    elif isinstance(output, (tuple, list)):
        for value in output:
            yield from tensors_in(value)
    elif is_dataclass(output) and not isinstance(output, type):
        for item in fields(output):
            yield from tensors_in(getattr(output, item.name))
    else:
        yield from (leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor))


def first_tensor(output: Any) -> Tensor | None:
    """The first tensor in whatever a model returned."""
    return next(tensors_in(output), None)


def total(output: Any) -> Tensor | None:
    """The sum of every tensor in the output that has a gradient to give; None when there is none."""
    sums = [leaf.sum() for leaf in tensors_in(output) if leaf.requires_grad]
    return sum(sums[1:], sums[0]) if sums else None
