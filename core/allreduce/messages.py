"""What the engine and the processes of its ranks say to each other: lines of JSON, orders on the rank's standard input,
replies on a descriptor that its command line names. Any thread; no torch."""

from __future__ import annotations

from typing import Literal

import msgspec

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int8")
"""What both gloo and NCCL add up, and whose sums can be verified."""
CPU_RANKS = 4
"""Processes on the CPU, where nobody says how many."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The first line that a rank gets."""

    rank: int
    world_size: int
    address: str
    """Where rank 0 listens."""
    port: int
    listener: int | None
    """Of rank 0: the descriptor of the socket, which listens already."""
    backend: str
    device: str
    """`cpu` or `cuda:N`."""
    dtype: str
    limit_seconds: float
    """For the other ranks to come, and for each collective."""
    settings: str
    """What has to be the same for all ranks, in words that can be printed."""


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all ranks of the world do next, at the same time."""

    kind: Literal["check", "block", "end"]
    count: int = 1
    """Elements of the tensor."""
    iterations: int = 1
    modelled_seconds: float = 0.0
    """Of a block that is not run: what it would take this engine's cards."""
    wrong: bool = False
    """Of `end`: because values were wrong here."""


class RankReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rank answers: once when it has found the others, once for each order."""

    kind: Literal["ready", "checked", "timed", "over", "failed"]
    seconds: float = 0.0
    """Of a block: of the slowest rank of the world."""
    wrong: int = 0
    """Of a check: elements of this rank that differ from the sum."""
    text: str = ""
    """Of `failed`: why; of `over`: why another engine ended the run, empty where nothing was wrong."""
