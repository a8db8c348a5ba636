"""What a run of model steps is made of: inputs, twins of the model with other tensors, and its FLOP. No thread of its
own.

FLOP are counted with torch.utils.flop_counter on a clone of the model on `meta`, where every layer is taken apart into
operations that the counter knows; on the CPU and on CUDA some layers run as one kernel that it does not (an LSTM, a
Transformer encoder in inference).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from devexplorer.core.models import clone_model, is_uninitialised, samples, total

Sample = Callable[[nn.Module, int], Sequence[Tensor] | None]
"""Called with a model and a batch size: inputs of the model on the CPU; None where it does not know the model."""


def sample_of(model: nn.Module, batch: int) -> Sequence[Tensor] | None:
    """Inputs of a sample model, whatever it is called and wherever it was moved; None for any other model."""
    for name, recipe in samples.recipes().items():
        built = samples.meta(name)
        if type(built) is type(model) and _outline(built) == _outline(model):
            return recipe.sample(batch)
    return None


def _outline(model: nn.Module) -> list[tuple[object, ...]]:
    """Every module by path and type, with its own parameters by name and shape (None where a lazy one has none yet)."""
    return [
        (
            path,
            type(module),
            [
                (name, None if is_uninitialised(p) else tuple(p.shape))
                for name, p in module.named_parameters(recurse=False)
            ],
        )
        for path, module in model.named_modules()
    ]


def fed(model: nn.Module, inputs: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Inputs on a device and, where they are floating, in the model's dtype."""
    first = next(model.parameters(), None)
    dtype = None if first is None else first.dtype
    return [tensor.to(device, dtype if tensor.is_floating_point() else None) for tensor in inputs]


def count_flop(model: nn.Module, sample: Sequence[Tensor], batch: int, *, backward: bool) -> int | None:
    """FLOP of a forward (and backward) of a batch; `sample` are inputs of a batch of 1. None where the model cannot run
    on `meta`.

    The model is left as it is. None as well where there is nothing that the counter counts.
    """
    meta = torch.device("meta")
    inputs = [
        torch.empty((batch, *tensor.shape[1:]), dtype=tensor.dtype, device=meta) for tensor in fed(model, sample, meta)
    ]
    try:
        copied = clone_model(model, lambda tensor: torch.empty_like(tensor, device=meta))
        with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(backward):
            loss = total(copied(*inputs))
            if loss is not None:
                loss.backward()
        return counter.get_total_flops() or None
    except (
        Exception,
        SystemExit,
    ):  # it looks at values, holds tensors that it has not registered, or is wrong, as a real step will tell
        return None
