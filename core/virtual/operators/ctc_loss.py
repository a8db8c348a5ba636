"""CTC loss on virtual GPUs; its lengths may be on the CPU, as on a real card. Any thread.

torch takes another way for subclasses of tensors, on which the mean over the batch wants all lengths on the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def register(library: Any) -> None:
    """Let the CTC loss of virtual GPUs fetch its lengths as that of a card does."""
    library.impl("ctc_loss.Tensor", ctc_loss, "AutogradPrivateUse1")


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """`aten::ctc_loss.Tensor`: the host reads the lengths, wherever they are."""
    lengths = input_lengths.tolist(), target_lengths.tolist()
    return aten.ctc_loss.IntList(log_probs, targets, *lengths, blank, reduction, zero_infinity)  # type: ignore[no-any-return]
