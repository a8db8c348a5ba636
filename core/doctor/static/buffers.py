"""Rule `unsaved-buffer`: buffers that no checkpoint has and no new build gives back. The main thread."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from devexplorer.core.base.formats import bytes_text
from devexplorer.core.doctor.static.model_context import ModelContext, joined
from devexplorer.core.models.walk import is_uninitialised, named_modules, size_of
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
