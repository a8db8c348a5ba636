"""One rank of an all-reduce: `python -P -m devexplorer.core.allreduce.rank FD`, a process of its own, started
by `ranks`.

The main thread carries out orders, each at the same time in every rank of the world; the thread `lifeline` reads them,
and kills the process with everything it started when the engine is gone. Before each order the ranks tell each other
whether one of them is asked to end. torch's all-reduce works in place: the result takes the place of the operand.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn

import msgspec
import psutil
import torch
import torch.distributed as dist
from torch import Tensor

from devexplorer.core.allreduce.messages import Order, RankReply, Setup
from devexplorer.core.base import Unavailable, first_line, typed_line

PERIOD = 251
"""Elements after which the pattern begins again: a prime, so that a part which arrives in another place is noticed."""
LARGEST_SUM = {"int8": 127, "bfloat16": 256, "float16": 2048}
"""Up to which every whole number is exact; far more in the other dtypes."""
MOST_DIFFERENT = 8
"""Different values of one rank, at most."""
RETRY_SECONDS = 0.1
"""Between two attempts to reach rank 0's machine."""
IFNAME = "GLOO_SOCKET_IFNAME"
GO_ON, END, WRONG = 0, 1, 2
_SOURCE_LINE = re.compile(r"^(\[[^\]]*\.\w+:\d+\]|NCCL error in: \S+:\d+,)\s*")
_LAST_ERROR = re.compile(r"^Last error:\s*\n(.+)", re.MULTILINE)


def pattern(rank: int, world_size: int, dtype: str) -> Tensor:
    """One period of what this rank contributes: whole numbers whose sum over all ranks is exact in this dtype, also in
    every part of it."""
    largest = LARGEST_SUM.get(dtype, 2048)
    different = min(max(largest // world_size + 1, 2), MOST_DIFFERENT)
    values = torch.arange(PERIOD) * (rank + 1) % PERIOD % different
    return values if rank < largest else torch.zeros_like(values)


def expected(world_size: int, dtype: str) -> Tensor:
    """One period of the sum over all ranks."""
    return torch.stack([pattern(rank, world_size, dtype) for rank in range(world_size)]).sum(0)


def _split(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Its whole periods as rows, and the rest."""
    whole = tensor.numel() // PERIOD * PERIOD
    return tensor[:whole].view(-1, PERIOD), tensor[whole:]


def fill(tensor: Tensor, values: Tensor) -> None:
    """Write a period over and over."""
    values = values.to(tensor.device, tensor.dtype)
    rows, rest = _split(tensor)
    rows.copy_(values)
    rest.copy_(values[: rest.numel()])


def differing(tensor: Tensor, values: Tensor) -> int:
    """Elements that are not those of the period."""
    values = values.to(tensor.device, tensor.dtype)
    rows, rest = _split(tensor)
    return int((rows != values).sum()) + int((rest != values[: rest.numel()]).sum())


def timed_block(tensor: Tensor, iterations: int, synchronize: Callable[[], object]) -> float:
    """Seconds of so many all-reduces in this rank, one right after the other, from the moment at which all ranks are
    there."""
    dist.barrier()
    synchronize()
    start = time.perf_counter()
    for _ in range(iterations):
        dist.all_reduce(tensor)
    synchronize()
    return time.perf_counter() - start


class Rank:
    """Carries out orders in a world that has found together."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._device = torch.device(setup.device)
        self._dtype: torch.dtype = getattr(torch, setup.dtype)
        self._talk = self._device if setup.backend == "nccl" else torch.device("cpu")
        """Where the tensors are over which the ranks agree."""
        self._tensor = torch.empty(0, dtype=self._dtype, device=self._device)

    def carry_out(self, order: Order) -> RankReply:
        """One order, together with all other ranks."""
        if order.kind != "end":
            asked = GO_ON
        elif order.wrong:
            asked = WRONG
        else:
            asked = END
        state = int(self._largest(asked))
        if state != GO_ON:
            return RankReply(kind="over", text="values are wrong in another engine's rank" if state == WRONG else "")
        if order.modelled_seconds:
            return RankReply(kind="timed", seconds=self._largest(order.modelled_seconds))
        if self._tensor.numel() != order.count:
            self._tensor = torch.empty(0, dtype=self._dtype, device=self._device)  # given back before the next is made
            self._tensor = torch.empty(order.count, dtype=self._dtype, device=self._device)
        if order.kind == "check":
            return RankReply(kind="checked", wrong=self._check())
        return RankReply(kind="timed", seconds=self._largest(timed_block(self._tensor, order.iterations, self._wait)))

    def _check(self) -> int:
        world, dtype = self._setup.world_size, self._setup.dtype
        fill(self._tensor, pattern(self._setup.rank, world, dtype))
        dist.all_reduce(self._tensor)
        return differing(self._tensor, expected(world, dtype))

    def _largest(self, value: float) -> float:
        """Over all ranks."""
        shared = torch.tensor([value], dtype=torch.float64, device=self._talk)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return float(shared.item())

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def reach(setup: Setup) -> str:
    """Wait until rank 0's machine listens: torch would do that with pauses of random length, and report each. Returns
    the address from which it was reached."""
    end = time.monotonic() + setup.limit_seconds
    while (left := end - time.monotonic()) > 0:
        try:
            with socket.create_connection((setup.address, setup.port), left) as connection:
                return str(connection.getsockname()[0])
        except OSError:
            time.sleep(min(RETRY_SECONDS, left))
    raise Unavailable(f"rank 0 did not answer at {setup.address}:{setup.port} within {setup.limit_seconds:g} s")


def own_address(listener: int) -> str:
    """Where rank 0 listens."""
    with socket.socket(fileno=os.dup(listener)) as own:
        return str(own.getsockname()[0])


def take_interface(address: str) -> str:
    """Let gloo bind to the interface that has this address, unless the user has named one: by itself it takes what the
    machine's own name stands for, often an address that no other machine reaches. Returns what it will take. Raises
    `Unavailable`."""
    interfaces = psutil.net_if_addrs()
    chosen = os.environ.get(IFNAME)
    if chosen and chosen not in interfaces:
        raise Unavailable(f"{IFNAME} is {chosen}, but this machine's network interfaces are {', '.join(interfaces)}")
    if not chosen:
        plain = address.partition("%")[0]  # an IPv6 address may end with its scope
        owners = [
            name for name, own in interfaces.items() if plain in {entry.address.partition("%")[0] for entry in own}
        ]
        if not owners:
            return ""
        chosen = os.environ[IFNAME] = owners[0]
    return chosen


def join(setup: Setup) -> None:
    """Find the other ranks. Raises `Unavailable` in one line."""
    address = reach(setup) if setup.listener is None else own_address(setup.listener)
    interface = take_interface(address) if setup.backend == "gloo" else ""
    limit = timedelta(seconds=setup.limit_seconds)
    within = f"within {setup.limit_seconds:g} s"
    try:
        store = dist.TCPStore(  # type: ignore[attr-defined]  # a name that torch exports without saying so
            setup.address,
            setup.port,
            is_master=setup.listener is not None,
            timeout=limit,
            wait_for_workers=False,
            master_listen_fd=setup.listener,
        )
        if setup.rank == 0:
            store.set("settings", setup.settings)
        theirs = store.get("settings").decode()
    except RuntimeError:
        raise Unavailable(f"rank 0 did not answer at {setup.address}:{setup.port} {within}") from None
    if theirs != setup.settings:
        raise Unavailable(f"rank 0 was started with other settings: {theirs} there, {setup.settings} here")
    store.set(_came(setup.rank), "")
    try:
        store.wait([_came(rank) for rank in range(setup.world_size)], limit)
    except RuntimeError:
        raise Unavailable(f"the {setup.world_size} ranks did not all come {within}") from None
    if setup.device != "cpu":
        torch.cuda.set_device(setup.device)
    began = time.monotonic()
    try:
        dist.init_process_group(
            setup.backend,
            store=store,
            rank=setup.rank,
            world_size=setup.world_size,
            timeout=limit,
            device_id=torch.device(setup.device) if setup.backend == "nccl" else None,
        )
        dist.barrier()
    except RuntimeError as error:
        raise Unavailable(not_connected(setup, error, interface, time.monotonic() - began)) from None


def not_connected(setup: Setup, error: BaseException, interface: str, seconds: float) -> str:
    """Why the backend did not connect ranks that all came, after so many seconds: a time-out, or what it reports."""
    over, late = f" over {interface}" if interface else "", seconds > 0.9 * setup.limit_seconds
    # a time-out names a key of the store, which says nothing more
    told = f" within {setup.limit_seconds:g} s" if late else f": {short(error)}"
    words = f"all {setup.world_size} ranks came, but {setup.backend} did not connect them{over}{told}"
    if setup.backend == "nccl" and not late:
        return words
    return f"{words}; {setup.backend.upper()}_SOCKET_IFNAME chooses another network interface"


def _came(rank: int) -> str:
    """The key of a rank that has found rank 0."""
    return f"came/{rank}"


def short(error: BaseException) -> str:
    """The first sentence of what gloo and NCCL report, without the line of their source; of NCCL also what it gives as
    the cause."""
    said = _SOURCE_LINE.sub("", first_line(error)).split(". This is typically")[0]
    cause = _LAST_ERROR.search(str(error))
    return said if cause is None else f"{said}: {cause[1].strip()}"


def main() -> NoReturn:
    """Join the world and carry out orders until the engine closes standard input."""
    out, lock = int(sys.argv[1]), threading.Lock()

    def say(reply: RankReply) -> None:
        with lock:
            os.write(out, msgspec.json.encode(reply) + b"\n")

    orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
    setup = msgspec.json.decode(sys.stdin.buffer.readline(), type=Setup)
    threading.Thread(target=_listen, args=(orders,), name="lifeline", daemon=True).start()
    warnings.simplefilter("ignore")  # torch's own, about its collectives
    torch.set_num_threads(1)  # the ranks share the cores
    try:
        join(setup)
        rank = Rank(setup)
        reply = RankReply(kind="ready")
        while reply.kind != "over":
            say(reply)
            reply = rank.carry_out(orders.get())
        say(reply)
    except Unavailable as error:
        say(RankReply(kind="failed", text=str(error)))
    except BaseException as error:
        text = short(error) if isinstance(error, RuntimeError) else typed_line(error)
        say(RankReply(kind="failed", text=text))
    os._exit(0)  # a process group that lost a rank can wait for ever to be taken down


def _listen(orders: queue.SimpleQueue[Order]) -> None:
    try:
        for line in sys.stdin.buffer:
            orders.put(msgspec.json.decode(line, type=Order))
    finally:
        os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
