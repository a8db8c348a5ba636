"""Recurrent layers cost the host one call, as cuDNN runs all their time steps in one. Here PyTorch composes them of
operations, whose kernels are counted one by one. Any thread.

Backward runs what belongs to a layer in nodes that were numbered while its forward ran; between two of them the engine
sums gradients, without a node.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import torch

MOST = 4_096
"""Forward passes that are remembered until their backward."""
_COMPOSITE = torch._C.DispatchKeySet(torch._C.DispatchKey.AutogradCPU)
"""Under this key torch has them as made of other operations, for whatever device they are on."""
_sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr


class _Recurrences(threading.local):
    """Those of a thread, by the numbers of their nodes: each from `first` up to `last`, which it does not have."""

    def __init__(self) -> None:
        self.forward = self.backward = False
        """Whether one runs now; of backward, as of the last node."""
        self.first: list[int] = []
        self.last: list[int] = []


_thread = _Recurrences()


def recurrent(overload: Any) -> Callable[..., Any]:
    """A recurrent layer, which is remembered for its backward."""

    def layer(*args: Any, **named: Any) -> Any:
        first, before = _sequence(), _thread.forward
        _thread.forward = True
        try:
            return overload.redispatch(_COMPOSITE, *args, **named)
        finally:
            _thread.forward = before
            if _sequence() > first:
                del _thread.first[: -MOST + 1], _thread.last[: -MOST + 1]
                _thread.first.append(first)
                _thread.last.append(_sequence())

    return layer


def is_within_recurrence() -> bool:
    """Whether the operation that the calling thread runs is a part of a recurrent layer."""
    known = _thread
    if known.forward or not known.first or torch._C._current_graph_task_id() == -1:
        return known.forward
    node: Any = torch._C._current_autograd_node()
    if node is not None:
        number = node._sequence_nr()
        place = bisect_right(known.first, number) - 1
        known.backward = place >= 0 and number < known.last[place]
    return known.backward
