"""A tensor made of a list of a device's numbers: each is read by the host, which virtual GPUs cannot imitate there. The
watched thread."""

from __future__ import annotations

from typing import Any

from devexplorer.core.doctor.tracing.call import Call
from devexplorer.core.doctor.tracing.operands import exchanged
from devexplorer.core.virtual.backend import is_virtual


class HostList:
    """The same list of numbers on the CPU; that they are waited for is what `hidden_sync` says."""

    def __init__(self, call: Call) -> None:
        self.args, self.kwargs = call.args, call.kwargs

    def repeated(self, func: Any) -> Any:
        """Make the tensor."""
        return func(*exchanged(self.args, lambda tensor: tensor.detach().cpu()), **self.kwargs)

    def note(self) -> None:
        """Nothing is wrong with it on a card."""


def host_list(call: Call) -> HostList | None:
    """Whether this is what failed."""
    if (
        call.kind.name not in ("tensor", "as_tensor", "asarray")
        or not call.args
        or not isinstance(call.args[0], (list, tuple))
    ):
        return None
    return HostList(call) if any(is_virtual(item) for item in call.operands) else None
