"""Commands that split a model over devices and join it, and what answers them. Any thread."""

from __future__ import annotations

import msgspec

from devexplorer.core.records.base import BaseCommand, BaseEvent, Record
from devexplorer.core.records.objects import Hop


class PlanSplit(BaseCommand, tag="PlanSplit"):
    """Plan how a model could be split over devices. Answered with `SplitPlanned`; moves nothing."""

    target: str
    budgets: dict[str, int] = msgspec.field(default_factory=dict)
    """Bytes that may be used, by device, in the order in which they are filled; empty: all accelerators, what is free
    on each less a tenth, then the CPU."""
    even: bool = False
    """Give each accelerator an equal part, instead of filling one after the other."""


class SplitBlock(Record):
    """A part of a model that stays together."""

    path: str
    type: str
    bytes: int
    device: str
    """Where it would be."""
    now: tuple[str, ...]
    """Where it is."""
    tied_with: tuple[str, ...] = ()
    """Blocks that hold the same parameter: they have to be on the same device."""


class SplitShare(Record):
    """One device of a plan."""

    device: str
    budget_bytes: int
    used_bytes: int


class SplitPlan(Record):
    """Where the blocks of a model would be."""

    target: str
    blocks: tuple[SplitBlock, ...]
    """In the order of `named_modules`: together they hold every parameter and buffer once."""
    shares: tuple[SplitShare, ...]
    hops: int
    """Times that activations would go to another device, if the blocks ran in their order."""
    warnings: tuple[str, ...] = ()


class SplitPlanned(BaseEvent, tag="SplitPlanned"):
    """What was asked with `PlanSplit`."""

    plan: SplitPlan

    @property
    def target(self) -> str:
        """The model that was planned for."""
        return self.plan.target


class Split(BaseCommand, tag="Split"):
    """Move the blocks of a model to their devices, all or none, and let activations follow (`InsertHops`)."""

    target: str
    device_map: dict[str, str]
    """Path of a block -> device; every parameter and buffer has to be covered."""


class Join(BaseCommand, tag="Join"):
    """Move a split model to one device and take its hops away; hooks and map of accelerate too, where it was dispatched
    by that."""

    target: str
    device: str


class InsertHops(BaseCommand, tag="InsertHops"):
    """Let each part of a model fetch what it is given to its own device (or not any more): for parts that were moved
    one by one."""

    target: str
    on: bool = True


class Hopped(BaseEvent, tag="Hopped"):
    """The hops of a forward of a model that has some, in their order."""

    target: str
    hops: tuple[Hop, ...]
