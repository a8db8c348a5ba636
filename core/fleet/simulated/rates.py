"""The rates that cards of a simulated fleet reach without noise and defects: what a virtual GPU of
their profile holds. Pure functions, any thread."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.base import BadInput, item_bytes
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.virtual.device.cost import LINK_EFFICIENCY, NETWORK_GB_S, Roofline, transfer_seconds
from devexplorer.core.virtual.device.work import Kind, Product, Work

SIDE = 8192
"""Of the square products."""
COPIED = 1 << 30
"""Bytes of one copy."""


def rate(kind: MeasuredKind, dtype: str, cards: Sequence[Profile], *, one_machine: bool) -> float:
    """TFLOP/s or decimal GB/s of a group of cards. Raises `BadInput` for what is not simulated."""
    match kind:
        case MeasuredKind.MATMUL:
            return _products(cards[0], dtype)
        case MeasuredKind.MEMORY:  # a copy within the card reads and writes; what arrived counts
            return COPIED / Roofline(cards[0]).seconds(Work(Kind.COPY, 0, 2 * COPIED)) / 1e9
        case MeasuredKind.COPIES:
            return COPIED / transfer_seconds(None, cards[0], COPIED) / 1e9
        case MeasuredKind.PEER | MeasuredKind.ALLREDUCE:  # a ring: the bus bandwidth is that of its narrowest link
            link = min(card.link_gb_s for card in cards)
            return (link if one_machine else min(link, NETWORK_GB_S)) * LINK_EFFICIENCY
    raise BadInput(f"{kind.value} is not simulated for a fleet; measure matmul, memory, copies, peer or allreduce")


def _products(card: Profile, dtype: str) -> float:
    if dtype not in card.tflops:
        raise BadInput(f"{card.name} has no {dtype} unit; it has {', '.join(card.tflops)}")
    flop = 2 * SIDE**3
    size = item_bytes("float32" if dtype == "tf32" else dtype)
    work = Work(Kind.PRODUCT, flop, 3 * SIDE * SIDE * size, dtype, Product(SIDE, SIDE, SIDE))
    return flop / Roofline(card).seconds(work) / 1e12
