"""The scan of Mamba's layers as the one kernel that it is on a card (`selective_scan_fn` of mamba-ssm), without values.
In the planner's process.

Without that package transformers loops over the tokens, with several operations for each. Chunked scans (Mamba 2,
gated delta rules) are products already, and run as transformers has them.

9 floating-point operations for each element of the state and token (https://github.com/state-spaces/mamba/issues/110),
in float32.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import register_flop_formula

FUNCTION = "mamba_selective_scan"
"""What the models of transformers call."""
FLOP = 9
_library: Any = None


def _install() -> None:
    global _library
    if _library is None:
        _library = torch.library.Library("devexplorer_scan", "DEF")
        _library.define("scan(Tensor A, Tensor x, Tensor[] others) -> (Tensor, Tensor)")
        _library.impl("scan", _without_values, "Meta")
        register_flop_formula(torch.ops.devexplorer_scan.scan, get_raw=True)(_flop)


def _without_values(a: Tensor, x: Tensor, others: list[Tensor]) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty((*x.shape[:2], a.shape[-1]), dtype=a.dtype)


def _flop(a: Tensor, x: Tensor, others: list[Tensor], *_: Any, **__: Any) -> int:
    return FLOP * x.numel() * int(a.shape[-1])


def _scan(hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, **given: Any) -> Any:  # noqa: N803
    others = [dt, B, C, *(value for value in given.values() if isinstance(value, Tensor))]
    output, state = torch.ops.devexplorer_scan.scan(A, hidden_states, others)
    return (output, state) if given.get("return_last_state") else output


@contextmanager
def one_kernel(model: nn.Module) -> Iterator[None]:
    """Scans of this model are one kernel."""
    homes = {type(module).__module__ for module in model.modules()}
    with ExitStack() as stack:
        for home in homes:
            if hasattr(sys.modules.get(home), FUNCTION):
                _install()
                stack.enter_context(patch.object(sys.modules[home], FUNCTION, _scan))
        yield
