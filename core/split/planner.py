"""Plans on which device each block of a model could be: accelerate proposes, what it proposes is checked and repaired.
Jobs thread.

accelerate (`infer_auto_device_map`) sees a skeleton of the model whose children are the blocks, so that it cuts nowhere
else, and numbers instead of devices: it knows no virtual GPUs. Number 0 means no device and has no room, because
accelerate keeps room for the largest layer free on the first device (and on `cpu`), where it would put layers that it
brings back from the host; here nothing is brought back. What is known of its planner: it leaves blocks over (issue
3041), overfills (608), and splits what is tied (4014).
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import nn

from devexplorer.core.base import BadInput, Unavailable, bytes_by_device_text, bytes_text, count_text
from devexplorer.core.models import is_uninitialised
from devexplorer.core.split.blocks import ModelBlock, ties

INSTALL = 'pip install "devexplorer[split]"'
NO_DEVICE = -1
"""The budget of accelerate's number 0."""


class Proposal(NamedTuple):
    """Where each block would be, by its index, and what had to be repaired."""

    devices: list[str]
    warnings: list[str]


def propose(name: str, blocks: Sequence[ModelBlock], budgets: Mapping[str, int]) -> Proposal:
    """A device for each block within these bytes; `BadInput` with the bytes where they do not suffice, `Unavailable`
    without accelerate."""
    _check_total(name, blocks, budgets)
    groups = Groups(blocks)
    wanted = _ask_accelerate(blocks, list(budgets), budgets)
    warnings: list[str] = []
    missing = sum(device is None for device in wanted)
    if missing:
        warnings.append(
            f"accelerate's planner found no room for {count_text(missing, 'block')}; they were put where there is some."
        )
    chosen, parted = groups.together(wanted)
    if parted:
        warnings.append("accelerate's planner would have parted tied blocks; they were put together.")
    overfull = groups.shrink(chosen, budgets)
    if overfull:
        warnings.append(
            f"accelerate's planner would have put too much on {' and '.join(overfull)}; it was taken down to the"
            " budget."
        )
    if not groups.fill(chosen, budgets):
        chosen = groups.from_scratch(name, budgets)
    return Proposal(groups.spread(chosen), warnings)


def _check_total(name: str, blocks: Sequence[ModelBlock], budgets: Mapping[str, int]) -> None:
    total, room = sum(block.own_bytes for block in blocks), sum(budgets.values())
    if total > room:
        each = bytes_by_device_text(budgets)
        raise BadInput(f"'{name}' needs {bytes_text(total)} and the budgets together are {bytes_text(room)}: {each}")


def _ask_accelerate(
    blocks: Sequence[ModelBlock], devices: Sequence[str], budgets: Mapping[str, int]
) -> list[str | None]:
    """accelerate's own answer; None where it would leave a block on disk, which is no device here, or forgets it."""
    accelerate = _accelerate()
    skeleton = nn.Module()
    for index, block in enumerate(blocks):
        part = nn.Module()
        known = [tensor for tensor in block.tensors if not is_uninitialised(tensor)]
        for place, tensor in enumerate(known):
            (part._parameters if isinstance(tensor, nn.Parameter) else part._buffers)[f"t{place}"] = tensor  # type: ignore[assignment]
        skeleton.add_module(f"block{index}", part)
    room = {0: NO_DEVICE} | {number: budgets[device] for number, device in enumerate(devices, start=1)}
    with _quiet():
        found = accelerate.infer_auto_device_map(skeleton, max_memory=room, clean_result=False, offload_buffers=True)
    names = dict(enumerate(devices, start=1))
    return [names.get(found.get(f"block{index}")) for index in range(len(blocks))]


def _accelerate() -> Any:
    if importlib.util.find_spec("accelerate") is None:
        raise Unavailable(
            f"planning needs the package accelerate, which is not installed here: {INSTALL}. Splitting by hand works"
            " without it: give each block its device, or move submodules one by one and insert hops"
        )
    return importlib.import_module("accelerate")


@contextmanager
def _quiet() -> Iterator[None]:
    """It warns that torch has no devices of these numbers, and it is right."""
    logger = logging.getLogger("accelerate.utils.modeling")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


Chosen = list[str | None]
"""A device per group, None: none yet."""


class Groups:
    """Blocks that are tied count as one; in the order of their first block."""

    def __init__(self, blocks: Sequence[ModelBlock]) -> None:
        self._blocks = blocks
        tied = ties(list(blocks))
        alone = set(range(len(blocks))).difference(*tied) if tied else set(range(len(blocks)))
        self.members = sorted([*tied, *((index,) for index in alone)])
        self.bytes = [sum(blocks[index].own_bytes for index in group) for group in self.members]

    def together(self, wanted: Sequence[str | None]) -> tuple[Chosen, bool]:
        """The device of each group, that of its first block, and whether any would have been parted."""
        chosen, parted = [], False
        for group in self.members:
            places = dict.fromkeys(wanted[index] for index in group)
            parted = parted or len(places) > 1
            chosen.append(next((place for place in places if place is not None), None))
        return chosen, parted

    def shrink(self, chosen: Chosen, budgets: Mapping[str, int]) -> list[str]:
        """Take the last groups off devices that hold more than they may; returns those devices."""
        overfull = []
        for device, budget in budgets.items():
            here = [index for index, place in enumerate(chosen) if place == device]
            while here and sum(self.bytes[index] for index in here) > budget:
                chosen[here.pop()] = None
                overfull.append(device)
        return list(dict.fromkeys(overfull))

    def fill(self, chosen: Chosen, budgets: Mapping[str, int]) -> bool:
        """Put what has no device where there is room, the nearest following device first; False where something is left
        over."""
        devices = list(budgets)
        free = dict(budgets)
        for index, place in enumerate(chosen):
            if place is not None:
                free[place] -= self.bytes[index]
        previous = 0
        for index, place in enumerate(chosen):
            if place is None:
                order = [*devices[previous:], *devices[:previous]]
                place = next((device for device in order if self.bytes[index] <= free[device]), None)
                if place is None:
                    return False
                chosen[index] = place
                free[place] -= self.bytes[index]
            previous = devices.index(place)
        return True

    def from_scratch(self, name: str, budgets: Mapping[str, int]) -> Chosen:
        """The largest first, each where the least is left over; `BadInput` where even that leaves something without a
        device."""
        free = dict(budgets)
        chosen: Chosen = [None] * len(self.members)
        for index in sorted(range(len(self.members)), key=lambda index: -self.bytes[index]):
            device = min(
                (item for item in free if self.bytes[index] <= free[item]), key=lambda item: free[item], default=None
            )
            if device is None:
                what = " and ".join(f"'{self._blocks[i].path or name}'" for i in self.members[index])
                tied = ", which share a tensor and stay together," if len(self.members[index]) > 1 else ""
                raise BadInput(
                    f"{what}{tied} {'need' if tied else 'needs'} {bytes_text(self.bytes[index])}, and no device has"
                    f" more than {bytes_text(max(free.values()))} of its budget left"
                )
            chosen[index] = device
            free[device] -= self.bytes[index]
        return chosen

    def spread(self, chosen: Chosen) -> list[str]:
        """The device of each block."""
        devices = [""] * len(self._blocks)
        for group, device in zip(self.members, chosen, strict=True):
            assert device is not None
            for index in group:
                devices[index] = device
        return devices
