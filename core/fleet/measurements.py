"""Which benchmark stands for a measurement of a fleet. Pure functions, any thread."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.base import BadInput
from devexplorer.core.records import BandwidthSpec, BenchSpec, DeviceInfo, MatmulSpec, ModelSpec
from devexplorer.core.records.fleet import MeasuredKind
from devexplorer.core.records.fleet_events import MeasureOrder

SIDES = ((24 << 30, 8192), (4 << 30, 4096), (0, 1024))
"""Least memory in bytes, and the side of the square products of such cards: large enough to fill them."""
COPIED = 1 << 28
"""Bytes of one copy."""
MODEL, BATCH = "resnet18", 32


def spec_of(order: MeasureOrder, cards: Sequence[DeviceInfo]) -> BenchSpec:
    """The benchmark of one group. Raises `BadInput` where there is none."""
    card = cards[0]
    match order.kind:
        case MeasuredKind.MATMUL:
            side = next(side for least, side in SIDES if (card.memory_total_bytes or 0) >= least)
            return MatmulSpec(device=card.id, dtype=order.dtype, m=side, n=side, k=side, seconds=order.seconds)
        case MeasuredKind.MEMORY:
            return _copies(card.id, card.id, order.seconds)
        case MeasuredKind.COPIES:
            return _copies("cpu", card.id, order.seconds)
        case MeasuredKind.PEER:
            return _copies(card.id, cards[1].id, order.seconds)
        case MeasuredKind.MODEL:
            return ModelSpec(target=MODEL, device=card.id, batch=BATCH, seconds=order.seconds)
    raise BadInput(f"{order.kind.value} cannot be measured on a machine's session yet")


def _copies(source: str, destination: str, seconds: float) -> BandwidthSpec:
    return BandwidthSpec(
        sources=(source,), destinations=(destination,), sizes=(COPIED,), pinned=(True,), seconds=seconds
    )
