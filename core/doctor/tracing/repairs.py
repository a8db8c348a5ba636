"""What can be done about a call that failed for where its operands are, so that the forward goes on and the rest is
examined too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from devexplorer.core.doctor.tracing.call import Call
from devexplorer.core.doctor.tracing.host_array import host_array
from devexplorer.core.doctor.tracing.host_list import host_list
from devexplorer.core.doctor.tracing.mixed_devices import mixed_devices
from devexplorer.core.doctor.tracing.on_host import on_host


class Repair(Protocol):
    """The same call in a way that works."""

    args: Any
    kwargs: Any
    """With which the rules look at it."""

    def repeated(self, func: Any) -> Any:
        """Call it so."""
        ...

    def note(self) -> None:
        """Report what was wrong."""
        ...


REPAIRS: Sequence[Callable[[Call], Repair | None]] = (host_list, on_host, mixed_devices, host_array)
"""Each says whether it is about this call."""
