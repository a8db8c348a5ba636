"""Calls that a virtual GPU cannot hold the operands or results of, and a card can: sparse and nested tensors. The
thread that is watched.

They are computed on the CPU, what is dense goes back to the card, and a note says that they were not checked there.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from devexplorer.core.doctor.tracing.call import Call
from devexplorer.core.doctor.tracing.operands import exchanged
from devexplorer.core.models.walk import is_irregular
from devexplorer.core.virtual.device.accounting import KIND

_MAKES = re.compile(r"sparse|nested")
"""In the names of functions whose result is such a tensor."""
CPU = torch.device("cpu")


class OnHost:
    """The call on the CPU."""

    def __init__(self, call: Call, kinds: list[str]) -> None:
        self._call, self._kinds = call, kinds
        brought = {id(tensor): tensor.cpu() for tensor in call.operands if tensor.device.type == KIND}
        args = exchanged(call.args, lambda tensor: brought.get(id(tensor), tensor))
        self.args: Any = tuple(
            CPU if call.kind.copies and isinstance(item, (str, torch.device)) else item for item in args
        )
        self.kwargs: Any = {
            name: CPU
            if name == "device" and value is not None
            else exchanged(value, lambda tensor: brought.get(id(tensor), tensor))
            for name, value in call.kwargs.items()
        }

    def repeated(self, func: Any) -> Any:
        """Call it so."""
        device = self._call.run.device
        if self._call.kind.name == "cuda":
            return self.args[0]
        return exchanged(func(*self.args, **self.kwargs), lambda made: made if is_irregular(made) else made.to(device))

    def note(self) -> None:
        """Say that it was not checked there."""
        call = self._call
        what = f"{' and '.join(self._kinds)} tensors"
        why = f"{call.kind.sentence} was computed on the CPU: virtual GPUs hold dense tensors only."
        call.run.collector.not_checked(what, why, call.place)


def on_host(call: Call) -> OnHost | None:
    """Whether this is what failed; nothing is done about a call that writes into a tensor of the card."""
    if call.run.device.type != KIND:
        return None
    given = call.operands
    kinds = ["nested" if item.is_nested else "sparse" for item in given if is_irregular(item)]
    if not kinds and (found := _MAKES.search(call.kind.name)) is not None:
        kinds = [found[0]]
    if not kinds or (call.kind.writes and isinstance(call.args[0], Tensor) and call.args[0].device.type == KIND):
        return None
    call.run.irregular = True
    return OnHost(call, list(dict.fromkeys(kinds)))
