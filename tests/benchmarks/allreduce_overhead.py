"""Bus bandwidth of `bench allreduce` on the CPU against a bare loop over `torch.distributed.all_reduce`, with gloo
between four local processes.

    python tests/benchmarks/allreduce_overhead.py [--rounds 40] [--seconds 0.1] [--ranks 4]

Twice, in blocks that alternate, the first by turns:
- *same processes*: four processes time a block of ours (`rank.timed_block`) and a bare loop that is written here;
- *as reported*: the processes that the benchmark starts, with its orders and answers, and four others with the bare
  loop. While one set computes, the other waits.
A block's seconds are those of the slowest rank. Prints, for each size, the median of the ratios of neighbouring blocks,
ours over bare, with p20 and p80; exits with 1 where a median of the first table is not within 5 %."""

from __future__ import annotations

import argparse
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from turns import load

from devexplorer.core.allreduce.messages import Order, Setup
from devexplorer.core.allreduce.rank import take_interface, timed_block
from devexplorer.core.allreduce.run import LOOPBACK, Ranks, listen

SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
WITHIN = 0.05
WARM_UP_BLOCKS = 3
LIMIT_SECONDS = 120.0
Block = Callable[[int, int], float]
"""Elements and iterations -> seconds of the slowest rank."""


def child(rank: int, ranks: int, port: int) -> None:
    """One process: for each line `ours|bare ELEMENTS ITERATIONS` a block; rank 0 prints the seconds."""
    torch.set_num_threads(1)
    take_interface(LOOPBACK)
    place = f"tcp://{LOOPBACK}:{port}"
    dist.init_process_group(
        "gloo", init_method=place, rank=rank, world_size=ranks, timeout=timedelta(seconds=LIMIT_SECONDS)
    )
    x = torch.zeros(0)
    for line in sys.stdin:
        which, elements, iterations = line.split()
        if x.numel() != int(elements):
            x = torch.zeros(int(elements))  # kept from block to block: new memory has to be found first
        if which == "ours":
            seconds = timed_block(x, int(iterations), lambda: None)
        else:
            dist.barrier()
            began = time.perf_counter()
            for _ in range(int(iterations)):
                dist.all_reduce(x)
            seconds = time.perf_counter() - began
        slowest = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if rank == 0:
            print(slowest.item(), flush=True)
    dist.destroy_process_group()


class Children:
    """Processes of `child`."""

    def __init__(self, ranks: int) -> None:
        with socket.create_server((LOOPBACK, 0)) as server:
            port = server.getsockname()[1]
        self._processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--child", str(rank), "--ranks", str(ranks), "--port", str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # as ours: Linux shares a busy core between sessions (autogroup)
            )
            for rank in range(ranks)
        ]

    def block(self, which: str, elements: int, iterations: int) -> float:
        """Seconds of the slowest."""
        for process in self._processes:
            assert process.stdin is not None
            print(which, elements, iterations, file=process.stdin, flush=True)
        assert self._processes[0].stdout is not None
        return float(self._processes[0].stdout.readline())

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            process.communicate()


def started(ranks: int) -> Ranks:
    """What the benchmark starts."""
    listener = listen(LOOPBACK, 0)
    setups = [
        Setup(
            rank=rank, world_size=ranks, address=LOOPBACK, port=listener.getsockname()[1], listener=None,
            backend="gloo", device="cpu", dtype="float32", limit_seconds=LIMIT_SECONDS, settings="",
        )
        for rank in range(ranks)
    ]  # fmt: skip
    result = Ranks(setups, listener, limit_seconds=LIMIT_SECONDS)
    result.meet(lambda: False)
    return result


def reported(ranks: Ranks, elements: int, iterations: int) -> float:
    """A block as the benchmark orders it."""
    ranks.tell(Order(kind="block", count=elements, iterations=iterations))
    replies = ranks.wait(lambda: False)
    assert replies is not None
    return max(reply.seconds for reply in replies.values())


def compare(ours: Block, bare: Block, nbytes: int, rounds: int, seconds: float, ranks: int) -> float:
    """Print one line; returns the median of the ratios."""
    elements, iterations = nbytes // 4, 1
    for _ in range(WARM_UP_BLOCKS):
        each = max(ours(elements, iterations), bare(elements, iterations)) / iterations
        iterations = max(round(seconds / each), 1)
    pairs = []
    for number in range(rounds):
        if number % 2:
            theirs = bare(elements, iterations)
            pairs.append((ours(elements, iterations), theirs))
        else:
            own = ours(elements, iterations)
            pairs.append((own, bare(elements, iterations)))
    ratios = [theirs / own for own, theirs in pairs]  # of bandwidths
    low, _, _, high = statistics.quantiles(ratios, n=5)
    median = statistics.median(ratios)
    moved = nbytes * iterations * 2 * (ranks - 1) / ranks
    rates = [moved / statistics.median(side) / 1e9 for side in zip(*pairs, strict=True)]
    print(
        f"  {nbytes >> 10:6,} KiB  ours {rates[0]:.4f} GB/s, bare {rates[1]:.4f} GB/s; ratio {median:.3f}"
        f" (p20 {low:.3f}, p80 {high:.3f}) over {rounds} pairs of {iterations}",
        flush=True,
    )
    return median


def main() -> int:
    """Both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a block")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        child(given.child, given.ranks, given.port)
        return 0
    print(f"{given.ranks} processes, gloo, float32, {load()}")
    children = Children(given.ranks)
    shared = (given.rounds, given.seconds, given.ranks)

    def bare(elements: int, iterations: int) -> float:
        return children.block("bare", elements, iterations)

    print("bus bandwidth, same processes:")
    medians = [compare(lambda *what: children.block("ours", *what), bare, size, *shared) for size in given.sizes]
    print("bus bandwidth, as reported:")
    ranks = started(given.ranks)
    for size in given.sizes:
        compare(lambda *what: reported(ranks, *what), bare, size, *shared)
    ranks.end()
    children.close()
    print(load())
    return int(any(abs(median - 1) > WITHIN for median in medians))


if __name__ == "__main__":
    sys.exit(main())
