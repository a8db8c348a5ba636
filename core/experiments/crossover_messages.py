"""Says in words where a device overtakes the CPU, with the Python that measures it. Pure functions, jobs thread."""

from __future__ import annotations

from devexplorer.core.base.formats import count_text, seconds_text
from devexplorer.core.base.python_names import quoted
from devexplorer.core.experiments.overtaking import DeviceSeconds, alone, overtaking, with_copies
from devexplorer.core.experiments.products import synchronise_code
from devexplorer.core.records.experiments import CrossoverMeasured
from devexplorer.core.records.messages import Answer, Fact


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
        f"With the operands there already, {_place(measured, alone)}. With the copies of both operands there and of the"
        f" result back, {_place(measured, with_copies)}. Small products are over before a launch has paid off, and"
        " copies grow with n² while the work grows with n³: that is why data should stay on the device."
    )
    if len(measured.points) < wanted:
        words += f" It was stopped after {len(measured.points)} of {count_text(wanted, 'size')}."
    clock = (
        f"{device}'s are simulated, from its datasheet: no product was computed there"
        if measured.simulated
        else f"{device}'s too"
    )
    words += f" The CPU's seconds are measured on this machine, with {count_text(threads, 'thread')}; {clock}. Medians."
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
