"""A plan of a split that is being edited: which block goes where, what that takes of each budget, and the smallest
equal budgets that hold all. No torch, no Qt; pure."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from devexplorer.core.records import Hop, ObjectSnapshot
from devexplorer.core.split.records import Split, SplitBlock, SplitPlan


def even_budget(sizes: Sequence[int], devices: int) -> int:
    """Bytes per device with which so many devices, filled one after the other, hold all of these; `sizes` must not be
    empty."""
    least = max(*sizes, -(-sum(sizes) // devices))
    budgets = range(least, sum(sizes))
    return least + bisect_left(budgets, True, key=lambda budget: _needed(sizes, budget) <= devices)


def _needed(sizes: Sequence[int], budget: int) -> int:
    needed, load = 1, 0
    for item in sizes:
        if load + item > budget:
            needed, load = needed + 1, 0
        load += item
    return needed


FEW = 3
"""So many blocks and more can become one box."""
INPUT, OUTPUT = -1, -2
"""Ends of an arrow that are no block."""


class Arrow(NamedTuple):
    """A hop between two blocks of a draft, by their places; the ends may be `INPUT` and `OUTPUT`."""

    before: int
    after: int
    hop: Hop | None
    """What the latest forward measured; None: nothing yet, it is only planned."""


class Draft:
    """The devices of a plan's blocks, as edited since it came."""

    def __init__(self, plan: SplitPlan) -> None:
        self.plan = plan
        self._devices = [block.device for block in plan.blocks]
        self._budgets = {share.device: share.budget_bytes for share in plan.shares}
        self._looked: tuple[ObjectSnapshot, list[tuple[str, ...]]] | None = None
        self._place = {block.path: index for index, block in enumerate(plan.blocks)}

    @property
    def blocks(self) -> tuple[SplitBlock, ...]:
        """In their order."""
        return self.plan.blocks

    @property
    def devices(self) -> tuple[str, ...]:
        """Where each block would go."""
        return tuple(self._devices)

    @property
    def edited(self) -> bool:
        """Whether it differs from the plan that came."""
        return any(block.device != device for block, device in zip(self.blocks, self._devices, strict=True))

    def put(self, places: Iterable[int], device: str) -> tuple[SplitBlock, ...]:
        """Let these blocks go to the device, with those that are tied to them; returns the tied ones that came
        along."""
        chosen = set(places)
        together = set(chosen)
        for place in chosen:
            together.update(self._place[path] for path in self.blocks[place].tied_with)
        for place in together:
            self._devices[place] = device
        return tuple(self.blocks[place] for place in sorted(together - chosen))

    def used_bytes(self, device: str) -> int:
        """What would be on the device."""
        return sum(block.bytes for block, chosen in zip(self.blocks, self._devices, strict=True) if chosen == device)

    def budget_bytes(self, device: str) -> int | None:
        """What may be there; None where the plan had no budget for it."""
        return self._budgets.get(device)

    def over(self) -> list[str]:
        """Devices that would hold more than they may."""
        return [
            device
            for device in dict.fromkeys(self._devices)
            if self.used_bytes(device) > (self._budgets.get(device) or 0)
        ]

    @property
    def hops(self) -> int:
        """Times that activations would go to another device, if the blocks ran in their order."""
        return sum(left != right for left, right in itertools.pairwise(self._devices))

    def command(self) -> Split:
        """Does what the draft says."""
        return Split(
            target=self.plan.target,
            device_map={block.path: d for block, d in zip(self.blocks, self._devices, strict=True)},
        )

    # --- what is

    def now(self, snapshot: ObjectSnapshot) -> list[tuple[str, ...]]:
        """Where each block is."""
        if self._looked is None or self._looked[0] is not snapshot:
            self._looked = (snapshot, self._find_blocks(snapshot))
        return self._looked[1]

    def _find_blocks(self, snapshot: ObjectSnapshot) -> list[tuple[str, ...]]:
        modules: dict[str, tuple[str, ...]] = {}
        direct: dict[str, set[str]] = {}
        partial = {block.path for block in self.blocks if any(_below(other.path, block.path) for other in self.blocks)}
        for row in snapshot.rows:
            if row.kind == "module":
                modules[row.path] = row.devices
            elif row.kind in ("parameter", "buffer") and (holder := row.path.rpartition(".")[0]) in partial:
                direct.setdefault(holder, set()).update(row.devices)
        return [
            tuple(sorted(direct.get(block.path, ()))) if block.path in partial else modules.get(block.path, block.now)
            for block in self.blocks
        ]

    def arrows(self, hops: Sequence[Hop] | None) -> list[Arrow]:
        """The hops of the latest forward; where there was none, those that would be."""
        if hops is None:
            pairs = enumerate(itertools.pairwise(self._devices))
            return [Arrow(place, place + 1, None) for place, (left, right) in pairs if left != right]
        return [self._arrow(hop, first=number == 0) for number, hop in enumerate(hops)]

    def _arrow(self, hop: Hop, *, first: bool) -> Arrow:
        before = self._find(hop.before, last=True) if hop.before else INPUT
        if hop.after:
            return Arrow(before, self._find(hop.after, last=False), hop)
        if first and before == INPUT:
            return Arrow(INPUT, 0, hop)
        return Arrow(len(self.blocks) - 1 if before == INPUT else before, OUTPUT, hop)

    def _find(self, path: str, *, last: bool) -> int:
        """The block at this path, or the last or first one inside of it, or the one around it."""
        if path in self._place:
            return self._place[path]
        inside = [place for place, block in enumerate(self.blocks) if _below(block.path, path)]
        around = [place for place, block in enumerate(self.blocks) if _below(path, block.path)]
        if inside:
            return inside[-1 if last else 0]
        if around:
            return around[-1]
        return INPUT if last else OUTPUT


def _below(path: str, other: str) -> bool:
    return path.startswith(f"{other}." if other else "") and path != other


def matches(draft: Draft, now: Sequence[tuple[str, ...]]) -> bool:
    """Whether the model is where the draft would put it."""
    return all(devices == (device,) or not devices for devices, device in zip(now, draft.devices, strict=True))


def runs(devices: Sequence[str], ends: Collection[int]) -> list[list[int]]:
    """The places of all blocks, those together that one box can represent: inside of a row on one device, where no hop
    begins or ends."""

    def inside(place: int) -> bool:
        return (
            place not in ends and len(set(devices[max(place - 1, 0) : place + 2])) == 1 and 0 < place < len(devices) - 1
        )

    result: list[list[int]] = []
    for together, group in itertools.groupby(range(len(devices)), inside):
        places = list(group)
        result += [places] if together and len(places) >= FEW else [[place] for place in places]
    return result


def shown_path(block: SplitBlock, blocks: Sequence[SplitBlock]) -> str:
    """The path as people read it; what the model holds itself has none."""
    if block.path:
        return block.path
    return "(the model)" if len(blocks) == 1 else "(its own tensors)"
