"""How many bytes of a model each device may hold in a plan: what the user said, or what is free less a tenth. Runs on
the jobs thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from devexplorer.core.base import BadInput, Findings, bytes_text
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import bytes_of, device_id
from devexplorer.core.split.blocks import Block

KEPT_FREE = 10
"""One part in so many stays free for activations and for what the allocator rounds up."""


def budgets_of(registry: DeviceRegistry, blocks: Sequence[Block], given: Mapping[str, int]) -> dict[str, int]:
    """Bytes by device, those without any left out; `BadInput` for devices that are not there and for numbers that are
    no budgets."""
    if not given:
        return _what_is_free(registry, blocks)
    findings = Findings()
    chosen: dict[str, int] = {}
    for text, budget in given.items():
        device = findings.checked(partial(registry.choose, text))
        if device is not None and budget < 0:
            findings.add(f"a budget of {budget:,} bytes for {device} is negative; 0 excludes the device")
        elif device is not None and budget:
            chosen[device] = chosen.get(device, 0) + budget
    findings.demand_none()
    if not chosen:
        raise BadInput("every budget is 0; give at least one device some bytes")
    return chosen


def _what_is_free(registry: DeviceRegistry, blocks: Sequence[Block]) -> dict[str, int]:
    """Accelerators first, then the CPU; what the blocks hold there now counts as free, since it can go."""
    held: dict[str, int] = {}
    for tensor in {id(tensor): tensor for block in blocks for tensor in block.tensors}.values():
        where = device_id(tensor.device)
        held[where] = held.get(where, 0) + bytes_of((tensor,))
    infos = [info for info in registry.infos() if info.usable]
    order = [info.id for info in infos if info.kind != "cpu"] + [info.id for info in infos if info.kind == "cpu"]
    budgets: dict[str, int] = {}
    for device in order:
        free = registry.backend(device).free_bytes(device)
        if free is not None:
            room = free + held.get(device, 0)
            budgets[device] = room - room // KEPT_FREE
    known = {device: budget for device, budget in budgets.items() if budget > 0}
    if not known:
        raise BadInput(
            f"the free memory of {', '.join(order)} is unknown; give budgets in bytes, for example"
            f" {bytes_text(1 << 30)}"
        )
    return known
