"""What the doctor says about a forward that failed for where its operands are. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from devexplorer.core.models import fetches_inputs
from devexplorer.core.records import Finding


def explain(module: nn.Module, inputs: Sequence[Tensor]) -> Finding | None:
    """Run the module once more, watched, as far as the operation that failed. Parts that fetch their inputs have no
    such cause."""
    if fetches_inputs(module):
        return None
    from devexplorer.core.doctor.tracing.again import cause  # what it brings along is needed only when something failed

    return cause(module, inputs)
