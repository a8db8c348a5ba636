"""Which benchmark stands for a measurement of a fleet. Pure functions, any thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from devexplorer.core.allreduce.kind import AllReduceSpec, Rendezvous
from devexplorer.core.bandwidth.kind import BandwidthSpec
from devexplorer.core.base import BadInput
from devexplorer.core.fleet.events import MeasureOrder
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.model_steps.kind import ModelSpec
from devexplorer.core.records import BenchSpec, DeviceInfo, MatmulSpec

SIDES = ((24 << 30, 8192), (4 << 30, 4096), (0, 1024))
"""Least memory in bytes, and the side of the square products of such cards: large enough to fill them."""
COPIED = 1 << 28
"""Bytes of one copy."""
REDUCED = 1 << 26
"""Bytes of each rank's tensor: large enough for the rate of the link."""
MEET_S = 30.0
"""For all ranks to meet."""
MODEL, BATCH = "resnet18", 32
AUTOCAST = ("float16", "bfloat16")


class Share(NamedTuple):
    """What one machine measures of a group."""

    devices: tuple[str, ...]
    meeting: Rendezvous | None = None
    """Where its ranks meet those of other machines."""


def spec_of(order: MeasureOrder, cards: Sequence[DeviceInfo], meeting: Rendezvous | None = None) -> BenchSpec:
    """The benchmark of one group, or of one machine's part in it. Raises `BadInput` where there is none."""
    card = cards[0]
    match order.kind:
        case MeasuredKind.MATMUL:
            side = next(side for least, side in SIDES if (card.memory_total_bytes or 0) >= least)
            seconds = order.soak_s + order.seconds
            return MatmulSpec(device=card.id, dtype=order.dtype, m=side, n=side, k=side, seconds=seconds)
        case MeasuredKind.MEMORY:
            return _copies(card.id, card.id, order.seconds)
        case MeasuredKind.COPIES:
            return _copies("cpu", card.id, order.seconds)
        case MeasuredKind.PEER:
            return _copies(card.id, cards[1].id, order.seconds)
        case MeasuredKind.MODEL:
            autocast = order.dtype if order.dtype in AUTOCAST else None
            return ModelSpec(target=MODEL, device=card.id, batch=BATCH, autocast=autocast, seconds=order.seconds)
        case MeasuredKind.ALLREDUCE:
            devices = tuple(card.id for card in cards)
            return AllReduceSpec(
                devices=devices, ranks=len(devices), sizes=(REDUCED,), seconds=order.seconds, limit_seconds=MEET_S,
                rendezvous=meeting,
            )  # fmt: skip
    raise BadInput(f"{order.kind.value} cannot be measured")


def _copies(source: str, destination: str, seconds: float) -> BandwidthSpec:
    return BandwidthSpec(
        sources=(source,), destinations=(destination,), sizes=(COPIED,), pinned=(True,), seconds=seconds
    )
