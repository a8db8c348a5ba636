"""Times one product over growing sizes on the CPU and on a device, copies left out and included. Runs on the jobs
thread.

The CPU is timed on this thread and on no other: a second one that computes would make small products several times
slower.
"""

from __future__ import annotations

import threading
from statistics import median

import torch

from devexplorer.core.base import BadInput, DevExplorerError, ProgressMonitor, count_text, quoted, seconds_text
from devexplorer.core.benchmark.spec import Checks
from devexplorer.core.benchmark.timing import BlockTimer, CpuTimer, Operation, timer_for
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.experiments.overtaking import DeviceSeconds, alone, overtaking, with_copies
from devexplorer.core.experiments.products import (
    ROUGH_CPU_FLOP_PER_S,
    check_size,
    make_product,
    refuse_long,
    synchronise_code,
)
from devexplorer.core.experiments.records import Crossover, CrossoverMeasured, CrossoverPoint
from devexplorer.core.records import Answer, Fact
from devexplorer.core.workspace import CommandResult, Workspace

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
    return Answer(title=title, words=words, facts=facts, code=_code(measured))


def _from(size: int, before: int | None) -> str:
    return f"from size {size} on" if before is not None else f"at every size from {size} on"


def _place(measured: CrossoverMeasured, seconds: DeviceSeconds) -> str:
    found = overtaking(measured.points, seconds)
    if found is None:
        return f"{measured.device} does not overtake the CPU within these sizes"
    if found.before is None:
        return f"{measured.device} is faster at every one of these sizes"
    return f"{measured.device} is faster from size {found.size} on (at {found.before} the CPU is not slower)"


def _code(measured: CrossoverMeasured) -> str:
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
