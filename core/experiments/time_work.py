"""Times products on a device twice: until their launches are over, and until the work is done. Runs on the jobs
thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from devexplorer.core.base import (
    BadInput,
    DevExplorerError,
    ProgressMonitor,
    count_text,
    flops_text,
    number_text,
    quoted,
    seconds_text,
)
from devexplorer.core.benchmark.timing import Operation, timer_for
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.experiments.products import (
    DTYPE,
    ROUGH_CPU_FLOP_PER_S,
    check_size,
    make_product,
    refuse_long,
    synchronise_code,
)
from devexplorer.core.experiments.records import TimeWork, WorkTimed
from devexplorer.core.records import Answer, Fact
from devexplorer.core.virtual.device.cost import launch_seconds
from devexplorer.core.workspace import CommandResult, Workspace

MOST_ITERATIONS = 10_000
DATASHEET_WORDS = "more than the {sheet} TFLOP/s of its datasheet, so it cannot be true"


class ProductTimes(NamedTuple):
    """Of so many products, on the wall or simulated."""

    launched: float
    """Until the last call returned."""
    finished: float
    """Until the device had done all of it."""


def time_work(workspace: Workspace, command: TimeWork, progress: ProgressMonitor) -> CommandResult:
    """Both times, and why they differ. Raises `BadInput` before anything is allocated, or when it would take
    minutes."""
    registry = workspace.registry
    device = registry.choose(command.device)
    if not 1 <= command.iterations <= MOST_ITERATIONS:
        raise BadInput(f"{command.iterations} iterations cannot be timed here; they are from 1 to {MOST_ITERATIONS}")
    spec = check_size(device, command.size, registry)
    info, work = registry.info(device), f"{count_text(command.iterations, 'product')} of size {command.size}"
    if device == "cpu":
        refuse_long(
            2 * command.size**3 / ROUGH_CPU_FLOP_PER_S, work, "smaller ones"
        )  # one of them alone could take minutes
    progress.report(0.0, f"{work} on {device}")
    operation = make_product(spec, registry).operation
    if info.simulated:
        times = _simulated(registry, device, operation, command.iterations)
    else:
        each = _real(registry, device, operation, 1).finished  # also warms up
        refuse_long(each * command.iterations, work, "fewer or smaller ones")
        times = _real(registry, device, operation, command.iterations, progress.cancelled)
    timed = WorkTimed(
        device=device,
        size=command.size,
        iterations=command.iterations,
        launched_seconds=times.launched,
        finished_seconds=times.finished,
        simulated=info.simulated,
    )
    return CommandResult(_answer(timed, info.kind, info.datasheet_tflops.get(DTYPE)), events=(timed,))


def _real(
    registry: DeviceRegistry,
    device: str,
    operation: Operation,
    iterations: int,
    stopped: Callable[[], bool] = lambda: False,
) -> ProductTimes:
    """On the wall, of one and the same run: the second reading only waits longer than the first."""
    backend = registry.backend(device)
    backend.synchronize(device)
    start = time.perf_counter()
    for _ in range(iterations):
        operation()
        if stopped():
            backend.synchronize(device)
            raise DevExplorerError("stopped; nothing was timed")
    launched = time.perf_counter() - start
    backend.synchronize(device)
    return ProductTimes(launched, time.perf_counter() - start)


def _simulated(registry: DeviceRegistry, device: str, operation: Operation, iterations: int) -> ProductTimes:
    """As the cost model has it: a launch keeps the host busy for `launch_seconds`, the device's clock says when the
    work is done."""
    timer = timer_for(device, registry, threading.Event(), paced=False)
    return ProductTimes(iterations * launch_seconds(), timer.block(operation, iterations).seconds)


def _answer(timed: WorkTimed, kind: str, datasheet: float | None) -> Answer:
    launched, finished = seconds_text(timed.launched_seconds), seconds_text(timed.finished_seconds)
    mark = " (simulated)" if timed.simulated else ""
    work = f"{count_text(timed.iterations, 'product')} of {timed.size}×{timed.size} matrices"
    facts = [
        Fact("without synchronising", f"{launched}{mark}"),
        Fact("with synchronising", f"{finished}{mark}"),
        Fact("one product", f"{seconds_text(timed.finished_seconds / timed.iterations)}{mark}"),
    ]
    if kind == "cpu":
        title = f"{work}: {finished}, either way"
        words = (
            "On the CPU both times are the same: the call computes, and returns when the product is there. There is"
            " nothing to synchronise with. On a GPU the same two lines of timing would differ, because there a call"
            " only launches the work."
        )
        return Answer(title=title, words=words, facts=tuple(facts), code=_code(timed))
    title = f"{work}: {launched} without synchronising, {finished} with"
    words = (
        f"A call only launches the product on {timed.device} and returns, so a timer that is read then has timed the"
        f" launches: {launched}. After synchronising, which waits for the device, it reads {finished}: the time of the"
        " work."
    )
    wrong, right = (_tflops(timed, seconds) for seconds in (timed.launched_seconds, timed.finished_seconds))
    facts += [
        Fact("rate by the first time", f"{flops_text(wrong)}{mark}"),
        Fact("rate", f"{flops_text(right)}{mark}"),
    ]
    if datasheet is not None and wrong > datasheet:
        words += (
            f" The first time would mean {flops_text(wrong)}, {DATASHEET_WORDS.format(sheet=number_text(datasheet))}."
        )
    if timed.simulated:
        each = seconds_text(launch_seconds())
        words += (
            f" Both are simulated: each launch takes {each} on the host, and the device's simulated clock says when the"
            " work is done."
        )
    return Answer(title=title, words=words, facts=tuple(facts), code=_code(timed))


def _tflops(timed: WorkTimed, seconds: float) -> float:
    """Of all products together, 2·n³ FLOP each; a time of 0 is a clock that did not tick."""
    return 2 * timed.size**3 * timed.iterations / max(seconds, 1e-9) / 1e12


def _code(timed: WorkTimed) -> str:
    return (
        "import time\n\nimport torch\n\n\n"
        "def _time_products(device, size, iterations):\n"
        "    def wait():\n"
        f"        {synchronise_code(timed.device)}\n\n"
        "    a = torch.rand(size, size, device=device)\n"
        "    b = torch.rand(size, size, device=device)\n"
        "    torch.mm(a, b)\n"
        "    wait()\n"
        "    start = time.perf_counter()\n"
        "    for _ in range(iterations):\n"
        "        torch.mm(a, b)\n"
        "    launched = time.perf_counter() - start\n"
        "    wait()\n"
        "    return launched, time.perf_counter() - start\n\n\n"
        f"print(_time_products({quoted(timed.device)}, {timed.size}, {timed.iterations}))"
    )
