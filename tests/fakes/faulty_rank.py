"""A rank of an all-reduce that goes wrong, for tests: `RANK_FAULT` is `wrong:2` (values of rank 2), `dies:2`, `hangs:2`
or `fails:2`, in its first timed block; or `unconnected:2`, when it would connect to the others."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch.distributed as dist
from torch import Tensor

from devexplorer.core.allreduce import rank
from devexplorer.core.allreduce.messages import Order, RankReply

FAULT, _, NUMBER = os.environ["RANK_FAULT"].partition(":")


class FaultyRank(rank.Rank):
    def carry_out(self, order: Order) -> RankReply:
        if self._setup.rank == int(NUMBER) and order.kind == "block":
            if FAULT in ("dies", "hangs"):
                os.kill(os.getpid(), signal.SIGKILL if FAULT == "dies" else signal.SIGSTOP)
            if FAULT == "fails":
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if self._setup.rank == 0 and FAULT == "hangs" and order.kind == "block":
            time.sleep(self._setup.limit_seconds + 0.2)  # then it ends, as NCCL's watchdog ends those that wait
            os.kill(os.getpid(), signal.SIGKILL)
        if self._setup.rank == int(NUMBER) and FAULT == "wrong":
            dist.all_reduce = _wrong
        return super().carry_out(order)


_right = dist.all_reduce


def _wrong(tensor: Tensor, *arguments: Any) -> None:
    _right(tensor, *arguments)
    if tensor.numel() > 10:
        tensor[3:6] += 1


def _no_route(*arguments: Any, rank: int, **other: Any) -> None:
    if rank == int(NUMBER):
        raise RuntimeError("no route to host")
    _connect(*arguments, rank=rank, **other)


_connect = dist.init_process_group


if __name__ == "__main__":
    rank.Rank = FaultyRank  # type: ignore[misc]
    if FAULT == "unconnected":
        dist.init_process_group = _no_route
    rank.main()
