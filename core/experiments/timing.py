"""Times products as the benchmarks do: until their launches are over and until the work is done; and over growing sizes
on the CPU and on a device. Runs on the jobs thread.

The CPU is timed on this thread and on no other: a second one that computes would make small products several times
slower.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

import torch

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
from devexplorer.core.benchmark.matmul import MeasuredProduct, product_maker
from devexplorer.core.benchmark.spec import Checks, check_matmul
from devexplorer.core.benchmark.timing import BlockTimer, CpuTimer, Operation, timer_for
from devexplorer.core.devices.backend import DeviceRegistry, torch_module
from devexplorer.core.experiments.records import (
    Crossover,
    CrossoverMeasured,
    CrossoverPoint,
    DeviceSeconds,
    TimeWork,
    WorkTimed,
    alone,
    overtaking,
    with_copies,
)
from devexplorer.core.records import Answer, Fact, MatmulSpec
from devexplorer.core.virtual.device.cost import launch_seconds
from devexplorer.core.workspace import CommandResult, Workspace

DTYPE = "float32"
ITEM_BYTES = 4
LONGEST_SECONDS = 60.0
"""An experiment holds up the jobs thread: what would take longer belongs on the Benchmark page."""
ROUGH_CPU_FLOP_PER_S = 2e10
"""A slow CPU's rate, about one core's with AVX2 at a low clock: to refuse in advance what would take minutes."""


def check_size(device: str, size: int, registry: DeviceRegistry) -> MatmulSpec:
    """The product of that size on an existing device. Raises `BadInput`, or `DoesNotFit`; allocates nothing."""
    spec = MatmulSpec(device=device, dtype=DTYPE, m=size, n=size, k=size, seconds=None)
    check_matmul(spec, registry.info(device))
    checks = Checks(registry)
    checks.fits(device, 3 * size * size * ITEM_BYTES, f"a product of size {size} needs")
    checks.demand_none()
    return spec


def make_product(spec: MatmulSpec, registry: DeviceRegistry) -> MeasuredProduct:
    """Operands on the device and what multiplies them; on a virtual GPU they have memory and cost, and no values."""
    return product_maker(simulated=registry.info(spec.device).simulated)(spec)


def refuse_long(seconds: float, what: str, less: str) -> None:
    """Raise `BadInput` when an experiment would take longer than a person waits for; `less` says what to choose
    smaller."""
    if seconds > LONGEST_SECONDS:
        raise BadInput(
            f"{what} would take about {seconds / 60:.0f} min here, and nothing else could run until then; choose"
            f" {less}, or measure it on the Benchmark page"
        )


def synchronise_code(device: str) -> str:
    """The Python that waits for a device, as one statement; `device` is its variable there."""
    kind = device.partition(":")[0]
    if kind == "cpu":
        return "pass  # the CPU is done when a call returns"
    return "torch.mps.synchronize()" if kind == "mps" else f"{torch_module(kind)}.synchronize(device)"


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
        f"A call only launches the product on {timed.device}, so a timer that is read when it returns has timed the"
        f" launches: {launched}. After synchronising it reads {finished}: the time of the work."
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
            f" Both are simulated: each launch takes {each} on the host, and the device's clock says how long the work"
            " takes."
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


BLOCKS = 5
"""Figures of which the median is taken."""
BLOCK_SECONDS = 0.01
"""About how long each of them lasts, where one product does not take longer."""
MOST_PER_BLOCK = 1000
MOST_SIZES = 16


def crossover(workspace: Workspace, command: Crossover, progress: ProgressMonitor) -> CommandResult:
    """The figures and where the device overtakes. Raises `BadInput` before anything is allocated.

    When it is stopped, the sizes that were measured until then are answered with; a `DevExplorerError` where there are
    none.
    """
    registry = workspace.registry
    device, sizes = _checked(command, registry)
    points: list[CrossoverPoint] = []
    for number, size in enumerate(sizes):
        if progress.cancelled():
            break
        progress.report(number / len(sizes), f"size {size}")
        points.append(_point(size, device, registry))
    if not points:
        raise DevExplorerError("stopped; nothing was measured")
    measured = CrossoverMeasured(device=device, simulated=registry.info(device).simulated, points=tuple(points))
    return CommandResult(crossed(measured, len(sizes), torch.get_num_threads()), events=(measured,))


def _checked(command: Crossover, registry: DeviceRegistry) -> tuple[str, tuple[int, ...]]:
    device = registry.choose(command.device)
    if device == "cpu":
        raise BadInput(
            "there is no device to compare with: the CPU cannot overtake itself; choose a GPU",
            virtual_helps=not any(info.simulated for info in registry.infos()),
        )
    sizes = tuple(sorted(set(command.sizes)))
    if not 2 <= len(sizes) <= MOST_SIZES:
        raise BadInput(
            f"{len(sizes)} different sizes are no curve that could cross another; choose from 2 to {MOST_SIZES}"
        )
    checks = Checks(registry)
    for size in sizes:
        for where in ("cpu", device):
            # defaults for a lambda
            checks.checked(lambda size=size, where=where: check_size(where, size, registry))  # type: ignore[misc]
    checks.demand_none()
    refuse_long(
        sum((BLOCKS + 1) * 2 * size**3 for size in sizes) / ROUGH_CPU_FLOP_PER_S,
        "the largest sizes on the CPU",
        "smaller ones",
    )
    return device, sizes


def _point(size: int, device: str, registry: DeviceRegistry) -> CrossoverPoint:
    """One size, in the order CPU, device, device with copies."""
    host = make_product(check_size("cpu", size, registry), registry)
    cpu = _median(CpuTimer(), host.operation)
    timer = timer_for(device, registry, threading.Event(), paced=False)
    there = _median(timer, make_product(check_size(device, size, registry), registry).operation)
    a, b = torch.rand(size, size), torch.rand(size, size)
    if registry.info(device).simulated:
        # The copies go through the dispatcher, the product's time is known: the CPU need not compute it again in place
        # of the card.
        copied = there + _median(timer, lambda: (a.to(device), b.to(device).cpu()))
    else:
        backend = registry.backend(device)
        backend.synchronize(device)
        copied = _median(
            CpuTimer(), lambda: torch.mm(a.to(device), b.to(device)).cpu()
        )  # .cpu() waits until it is done
    return CrossoverPoint(size=size, cpu_seconds=cpu, device_seconds=there, device_with_copies_seconds=copied)


def _median(timer: BlockTimer, operation: Operation) -> float:
    """Seconds of one call: the median of a few blocks, after one call that warms up and says how many make a block."""
    each = timer.block(operation, 1).seconds
    if timer.simulated:
        return each  # nothing about it is random
    each = min(each, timer.block(operation, 1).seconds)
    count = int(min(max(BLOCK_SECONDS / max(each, 1e-9), 1), MOST_PER_BLOCK))
    return median(sample for _ in range(BLOCKS) for sample in timer.block(operation, count).samples)


# --- the answer


def crossed(measured: CrossoverMeasured, wanted: int, threads: int) -> Answer:
    """The answer; `wanted` is the number of sizes that were asked for, `threads` that of the CPU's."""
    device = measured.device
    first = overtaking(measured.points, alone)
    title = (
        f"{device} overtakes the CPU {_from(first.size, first.before)}"
        if first
        else f"{device} does not overtake the CPU here"
    )
    words = (
        f"With the operands already there, {_place(measured, alone)}. With the operands copied there and the result"
        f" back, {_place(measured, with_copies)}. A launch takes longer than a small product, and copies grow with n²"
        " while the work grows with n³, so data should stay on the device."
    )
    if len(measured.points) < wanted:
        words += f" It was stopped after {len(measured.points)} of {count_text(wanted, 'size')}."
    clock = "simulated from its datasheet" if measured.simulated else "timed too"
    words += f" Medians: the CPU was timed here, with {count_text(threads, 'thread')}; {device} was {clock}."
    mark = " (simulated)" if measured.simulated else ""
    facts = tuple(
        Fact(
            f"size {point.size}",
            f"CPU {seconds_text(point.cpu_seconds)} · {device}{mark} {seconds_text(point.device_seconds)}, "
            f"with copies {seconds_text(point.device_with_copies_seconds)}",
        )
        for point in measured.points
    )
    return Answer(title=title, words=words, facts=facts, code=_crossover_code(measured))


def _from(size: int, before: int | None) -> str:
    return f"at size {size}" if before is not None else f"at every size from {size} up"


def _place(measured: CrossoverMeasured, seconds: DeviceSeconds) -> str:
    found = overtaking(measured.points, seconds)
    if found is None:
        return f"{measured.device} does not overtake the CPU within these sizes"
    if found.before is None:
        return f"{measured.device} is faster at every one of these sizes"
    return f"{measured.device} is faster from size {found.size} up (at {found.before} the CPU is not slower)"


def _crossover_code(measured: CrossoverMeasured) -> str:
    sizes = ", ".join(str(point.size) for point in measured.points)
    return (
        "import statistics\nimport time\n\nimport torch\n\n\n"
        "def _compare_with_cpu(device, sizes):\n"
        "    def wait():\n"
        f"        {synchronise_code(measured.device)}\n\n"
        "    def median_seconds(work, repeats=20):\n"
        "        work()\n"
        "        seconds = []\n"
        "        for _ in range(repeats):\n"
        "            wait()\n"
        "            start = time.perf_counter()\n"
        "            work()\n"
        "            wait()\n"
        "            seconds.append(time.perf_counter() - start)\n"
        "        return statistics.median(seconds)\n\n"
        "    for size in sizes:\n"
        "        a, b = torch.rand(size, size), torch.rand(size, size)\n"
        "        c, d = a.to(device), b.to(device)\n"
        "        cpu = median_seconds(lambda: torch.mm(a, b))\n"
        "        alone = median_seconds(lambda: torch.mm(c, d))\n"
        "        with_copies = median_seconds(lambda: torch.mm(a.to(device), b.to(device)).cpu())\n"
        "        print(size, cpu, alone, with_copies)\n\n\n"
        f"_compare_with_cpu({quoted(measured.device)}, [{sizes}])"
    )
