"""The scans of state-space layers, and the update of their states, as the kernels that they are on a card (mamba-ssm),
without values. In the planner's process.

Without that package transformers takes them apart: Mamba's scan into a loop over the tokens, that of Mamba 2 into
products of chunks whose factors are written out, an update into half a dozen operations that each write the state.

Mamba: 9 floating-point operations for each element of the state and token
(https://github.com/state-spaces/mamba/issues/110), in float32. Mamba 2: the products within a chunk and with the states
between chunks, on the units of the activations' dtype (mamba_ssm/ops/triton/ssd_combined.py), which also writes the
products of each chunk and the states between chunks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

FLOP = 9
_library: Any = None


def _install() -> None:
    global _library
    if _library is None:
        _library = torch.library.Library("devexplorer_scan", "DEF")
        for schema, meta, flop in (
            ("scan(Tensor A, Tensor x, Tensor[] others) -> (Tensor, Tensor)", _scanned, _scan_flop),
            ("chunks(Tensor x, Tensor B, int chunk, Tensor[] others) -> Tensor[]", _chunked, _chunks_flop),
            ("update(Tensor state, Tensor written, Tensor x, Tensor[] others) -> Tensor", _updated, _update_flop),
        ):
            name = schema.partition("(")[0]
            _library.define(schema)
            _library.impl(name, meta, "Meta")
            register_flop_formula(getattr(torch.ops.devexplorer_scan, name), get_raw=True)(flop)


def _scanned(a: Tensor, x: Tensor, others: list[Tensor]) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty((*x.shape[:2], a.shape[-1]), dtype=a.dtype)


def _scan_flop(a: Tensor, x: Tensor, *_: Any, **__: Any) -> int:
    return FLOP * x.numel() * int(a.shape[-1])


def _scan(hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, **given: Any) -> Any:  # noqa: N803
    output, state = torch.ops.devexplorer_scan.scan(A, hidden_states, [dt, B, C, *_tensors(given)])
    return (output, state) if given.get("return_last_state") else output


def _chunked(x: Tensor, b: Tensor, chunk: int, others: list[Tensor]) -> list[Tensor]:
    """Output, the last state; states between chunks and products within them, which other kernels read."""
    batch, length, heads, width = x.shape
    groups, size = b.shape[-2:]
    chunks = -(-length // chunk)
    return [
        torch.empty_like(x, memory_format=torch.contiguous_format),
        x.new_empty((batch, heads, width, size), dtype=torch.float32),
        x.new_empty((batch, chunks, heads, width, size), dtype=torch.float32),
        x.new_empty((batch, chunks, groups, chunk, chunk), dtype=torch.float32),
    ]


def _chunks_flop(x: Tensor, b: Tensor, chunk: int, *_: Any, **__: Any) -> int:
    groups, size = b.shape[-2:]
    tokens, heads, width = x[..., 0, 0].numel(), *x.shape[-2:]
    within = chunk * (groups * size + heads * width)
    return 2 * tokens * (within + 2 * heads * width * int(size))


def _scan_chunks(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    chunk_size: int,
    **given: Any,
) -> Any:
    others = [dt, A, C, *_tensors(given)]
    output, state, *_ = torch.ops.devexplorer_scan.chunks(hidden_states, B, chunk_size, others)
    return (output, state) if given.get("return_final_states") else output


def _updated(state: Tensor, written: Tensor, x: Tensor, others: list[Tensor]) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _update_flop(state: Tensor, *_: Any, **__: Any) -> int:
    return FLOP * state.numel()


def _update(state: Tensor, hidden_states: Tensor, *given: Any, **named: Any) -> Tensor:
    others = [*_tensors(dict(enumerate(given))), *_tensors(named)]
    return torch.ops.devexplorer_scan.update(state, state, hidden_states, others)  # type: ignore[no-any-return]


def _tensors(given: Mapping[Any, Any]) -> list[Tensor]:
    """Expanded ones as they lie in memory: one number of a row that is repeated."""
    tensors = (value for value in given.values() if isinstance(value, Tensor))
    return [tensor[(*(slice(1) if step == 0 else slice(None) for step in tensor.stride()),)] for tensor in tensors]


KERNELS: dict[str, Callable[..., Any]] = {
    "mamba_selective_scan": _scan,
    "mamba2_chunk_scan": _scan_chunks,
    "mamba_selective_state_update": _update,
    "mamba2_selective_state_update": _update,
}
"""What the models of transformers call, by the names of mamba-ssm's `selective_scan_fn`, `mamba_chunk_scan_combined`
and `selective_state_update`."""


def _calls(model: nn.Module) -> Iterator[tuple[Any, str]]:
    """What is called from the code of this model: the module of Python, and the name there."""
    for home in {type(module).__module__ for module in model.modules()}:
        for name in KERNELS:
            if hasattr(sys.modules.get(home), name):
                yield sys.modules[home], name


def has_scans(model: nn.Module) -> bool:
    """Whether any of this is for the model."""
    return any(_calls(model))


@contextmanager
def one_kernel(model: nn.Module) -> Iterator[None]:
    """Scans and updates of this model are one kernel each."""
    with ExitStack() as stack:
        for home, name in list(_calls(model)):
            _install()
            stack.enter_context(patch.object(home, name, KERNELS[name]))
        yield
