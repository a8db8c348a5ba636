"""Collects everything that is wrong with a specification, so that one error can say all of it. No torch, no thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from devexplorer.core.base.errors import BadInput, DoesNotFit
from devexplorer.core.base.formats import bytes_text
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.virtual.device.machine import VirtualMachine

T = TypeVar("T")


class Checks:
    """Ask what a specification needs, then `demand_none`."""

    def __init__(self, fleet: DeviceRegistry) -> None:
        self._fleet = fleet
        self._found: list[BadInput] = []

    def add(self, finding: str, *, virtual_helps: bool = False) -> None:
        """Something is wrong, in words."""
        self._found.append(BadInput(finding, virtual_helps=virtual_helps))

    def checked(self, make: Callable[[], T]) -> T | None:
        """What `make` returns, None when it finds something wrong."""
        try:
            return make()
        except BadInput as error:
            self._found.append(error)
            return None

    def succeeded(self, check: Callable[[], object]) -> bool:
        """Whether `check` finds nothing wrong."""
        before = len(self._found)
        self.checked(check)
        return len(self._found) == before

    def devices(self, names: Sequence[str]) -> tuple[str, ...]:
        """Canonical ids of those that there are, in their order."""
        # a default for a lambda
        chosen = [self.checked(lambda name=name: self._fleet.choose(name)) for name in names]  # type: ignore[misc]
        return tuple(device for device in chosen if device is not None)

    def one_clock(self, devices: Sequence[str]) -> None:
        """Refuse accelerators of which some are real and some virtual: seconds and simulated seconds cannot be
        compared."""
        virtual = [device for device in devices if self._fleet.info(device).simulated]
        real = [device for device in devices if device not in virtual]
        if virtual and real:
            are = "is" if len(real) == 1 else "are"
            clocks = "their clocks cannot be compared"
            self.add(
                f"{', '.join(real)} {are} real and {', '.join(virtual)} simulated: {clocks}; choose devices of one kind"
            )

    def fits(self, device: str, nbytes: int, what: str, *, values: bool = False) -> None:
        """Note a `DoesNotFit` when new tensors of so many bytes do not fit; `what` begins its message ("copies of 1 GiB
        need").

        Without `values` a virtual GPU's tensors take nothing of the host's memory.
        """
        backend = self._fleet.backend(device)
        free = (
            backend.device_free_bytes(device)
            if isinstance(backend, VirtualMachine) and not values
            else backend.free_bytes(device)
        )
        if free is not None and nbytes > free:
            words = f"{what} {bytes_text(nbytes)} on {device}, and {bytes_text(free)} are free; take less"
            self._found.append(DoesNotFit(words, device=device, needed_bytes=nbytes, free_bytes=free))

    def demand_none(self) -> None:
        """Raise what was found: the error itself, or one with every finding."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            findings = dict.fromkeys(finding for error in self._found for finding in error.findings)
            raise BadInput(*findings, virtual_helps=any(error.virtual_helps for error in self._found))
