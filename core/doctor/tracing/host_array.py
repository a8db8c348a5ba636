"""A tensor of a device that is asked for its NumPy array: refused there, and done on the CPU. The thread that is
watched."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from devexplorer.core.doctor.tracing.call import Call


class HostArray:
    """`.numpy()` of a copy on the CPU."""

    def __init__(self, call: Call, tensor: Tensor) -> None:
        self._call, self._tensor = call, tensor
        self.args: Any = (tensor.cpu(), *call.args[1:])
        self.kwargs: Any = call.kwargs

    def repeated(self, func: Any) -> Any:
        """The array of the copy."""
        return getattr(self.args[0], self._call.kind.name)(*self.args[1:], **self.kwargs)

    def note(self) -> None:
        """It works on the CPU only."""
        run = self._call.run
        origin = run.sources.of(self._tensor)
        run.collector.add(
            "fails-on-device",
            f"A NumPy array is asked of {origin.description(run.path)}; it is on {self._tensor.device}, and NumPy reads"
            " the CPU's memory only.",
            "Compute it with torch, on the device; or copy it over first with .cpu().numpy(), which waits for the"
            " device at each call.",
            place=self._call.place,
            operands=[origin.operand],
        )


def host_array(call: Call) -> HostArray | None:
    """Whether this is what failed."""
    if call.kind.name not in ("numpy", "__array__") or not call.args or not isinstance(call.args[0], Tensor):
        return None
    tensor = call.args[0]
    return None if tensor.device.type in ("cpu", "meta") or tensor.requires_grad else HostArray(call, tensor)
