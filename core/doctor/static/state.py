"""Rules `unsaved-buffer`, buffers that no checkpoint has and no new build gives back, and `optimizer-before-move`,
optimizers that the model itself holds. The main thread."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from devexplorer.core.base import bytes_text, count_text
from devexplorer.core.doctor.static.aliases import Registry
from devexplorer.core.doctor.static.model_context import AttributeRef, ModelContext, bytes_of, joined
from devexplorer.core.models import device_id, held_by, is_uninitialised, named_modules, size_of, state_tensors
from devexplorer.core.models.optimizers import left_behind
from devexplorer.core.virtual.operators.tensor import VirtualTensor

LARGEST = 256 * 1024 * 1024
"""Bytes of one buffer that are still compared."""


class Unsaved:
    """The values of non-persistent buffers at one moment, on the CPU."""

    def __init__(self, model: nn.Module, context: ModelContext | None = None) -> None:
        self.values: dict[str, Tensor] = {}
        for path, module in named_modules(model):
            for name in module._non_persistent_buffers_set:
                buffer = module._buffers.get(name)
                if buffer is None or is_uninitialised(buffer) or buffer.layout is not torch.strided or buffer.is_nested:
                    continue
                full = joined(path, name)
                if size_of(buffer) <= LARGEST:
                    values = _values(buffer)
                    if values is not None:
                        self.values[full] = values
                elif context is not None:
                    context.collector.not_checked(
                        f"the values of {full}",
                        f"it has {bytes_text(size_of(buffer))}, too much to compare",
                        context.place(full),
                    )

    def changed(self, other: Unsaved) -> list[str]:
        """Paths whose values differ, where shape and dtype are the same."""
        return [
            path
            for path, values in self.values.items()
            if path in other.values
            and values.shape == other.values[path].shape
            and values.dtype == other.values[path].dtype
            if not _equal(values, other.values[path])
        ]


def _values(tensor: Tensor) -> Tensor | None:
    """A copy that is no work of the device: what is inside a virtual tensor is taken from there."""
    inner = tensor._inner if type(tensor) is VirtualTensor else tensor
    return None if inner.is_meta else inner.detach().cpu().clone()


def _equal(item: Tensor, other: Tensor) -> bool:
    if item.dtype.is_floating_point or item.dtype.is_complex:
        return bool(torch.isclose(item, other, rtol=0, atol=0, equal_nan=True).all())
    return torch.equal(item, other)


def report_unsaved(context: ModelContext, path: str, drawn: bool) -> None:
    """A finding about one buffer: `drawn` by chance when the model was built, or else changed by a forward in
    training."""
    name = path.rpartition(".")[2]
    why = "is drawn at random in every build" if drawn else "is changed by forward in training"
    context.collector.add(
        "unsaved-buffer",
        f"self.{name} is a buffer with persistent=False and {why}: a checkpoint does not have it, and a model "
        "that is loaded computes something else.",
        f'Remove persistent=False: self.register_buffer("{name}", …).',
        path=path,
        place=context.place(path),
    )


def optimizers(ref: AttributeRef) -> list[Optimizer]:
    """Those that an attribute leads to."""
    return [item.thing for item in ref.attribute.things if isinstance(item.thing, Optimizer)]


def report_lazy(ref: AttributeRef, optimizer: Optimizer) -> None:
    """A finding where an optimizer was given parameters that have no shape yet."""
    waiting = [tensor for tensor in held_by(optimizer) if is_uninitialised(tensor)]
    if waiting:
        ref.report(
            "lazy-parameter",
            f"{ref.label} was given {count_text(len(waiting), 'lazy parameter')} before the first forward: without a"
            " shape there is nothing to optimise yet.",
            "Run the model once with a sample input, then make the optimizer.",
        )


def report_left(ref: AttributeRef, optimizer: Optimizer) -> None:
    """A finding where the model was moved after its optimizer had made its state, before it is moved for the
    examination, which can bring both together again."""
    behind, device = left_behind(optimizer)
    if device is not None:
        ref.report(
            "optimizer-before-move",
            f"{ref.label} ({type(optimizer).__name__}) was made before the model was moved to {device_id(device)}:"
            f" {count_text(len(behind), 'tensor')} of its state stayed on {device_id(behind[0].device)}, and its"
            " next step fails.",
            "Make the optimizer after the model has been moved; load_state_dict(old.state_dict()) gives the new one the"
            " old one's state.",
            bytes=bytes_of(behind),
        )


def report_optimizer(
    ref: AttributeRef,
    optimizer: Optimizer,
    registry: Registry,
    hidden: Collection[int],
    moved: bool,
) -> None:
    """A finding where the optimizer's tensors are not the model's any more, or its state is on another device than its
    parameter.

    `hidden` are ids of tensors about which there is a finding already; `moved`: whether the move has copied anything.
    """
    lost = [
        tensor for tensor in held_by(optimizer) if id(tensor) not in registry.tensor_ids and id(tensor) not in hidden
    ]
    kind = type(optimizer).__name__
    if lost:
        ref.report(
            "optimizer-before-move",
            f"{ref.label} ({kind}) holds {count_text(len(lost), 'tensor')} that the model does not have as a parameter"
            " (any more): its steps change nothing there.",
            "Make the optimizer after the model has been moved, from model.parameters().",
            bytes=bytes_of(lost),
        )
        return
    behind: list[Tensor] = []
    device = None
    for parameter, name, value in state_tensors(optimizer):
        if not (name == "step" and value.dim() == 0) and (value.device != parameter.device or not moved):
            behind.append(value)
            device = parameter.device
    if behind and device is not None:
        where = device_id(behind[0].device)
        are = "is" if len(behind) == 1 else "are"
        problem = (
            f"on {where}, the parameters on {device_id(device)}"
            if moved
            else f"made already and will stay on {where} when the model moves"
        )
        ref.report(
            "optimizer-before-move",
            f"{ref.label} ({kind}) was made before the move: {count_text(len(behind), 'tensor')} of its state {are}"
            f" {problem}, and the next step fails.",
            "Make the optimizer after the model has been moved; load_state_dict(old.state_dict()) gives the new one the"
            " old one's state.",
            bytes=bytes_of(behind),
        )
