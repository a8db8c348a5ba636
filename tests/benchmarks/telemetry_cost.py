"""The cost of a sample of 8 cards: bare ctypes, raw pynvml, ours, nvitop and gpustat in one run, on the same fake
driver.

    pip install --no-deps --target DIR nvitop gpustat blessed jinxed wcwidth
    python tests/benchmarks/telemetry_cost.py [--peers DIR] [--rounds N]

(`--no-deps`: both peers ask for an older nvidia-ml-py than this project. Without `--peers` the installed ones are
taken, if any.)

The driver is tests/fakes/nvml_c, in which every call sleeps for a given time. Sleeping takes longer than requested, so
the measured time is shown with the time computed for a driver that takes exactly that long: the contender's own time
(measured with a driver that takes none) plus its counted calls. Blocks of all contenders are interleaved; medians of
blocks.

Exit code 1 when a limit is missed; a peer that is absent or refuses to run is named and has no number.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from fakes.nvml_library import CannotBuildError, NvmlLibrary, build

from devexplorer.core.devices.cpu import CpuFacts, CpuReader
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.telemetry.sampler import Sampler

CARDS = 8
DELAY_US = 20
SLOW_DELAY_US = 200
FIELDS = 6  # memory, utilization, temperature, power, SM clock, memory clock: one call each
BARE_LIMIT = 1.3
NVITOP_LIMIT = 1 / 5
PARALLEL_LIMIT = 3.0
FEW = 3
BARE, ONE_THREAD, THREADS = "bare ctypes, reused buffers", "ours, one thread", "ours, the sampler's threads"

Sample = Callable[[], object]


class Cost(NamedTuple):
    """One contender: seconds of a sample of all cards with the driver's delay and without one, and its calls."""

    delayed_s: float
    own_s: float
    calls: int

    @property
    def exact_s(self) -> float:
        """With a driver that takes exactly the given time."""
        return self.own_s + self.calls * DELAY_US / 1e6


def main() -> int:
    """Measure, print, return the number of limits missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, metavar="DIR", help="where nvitop and gpustat are installed")
    parser.add_argument("--rounds", type=int, default=30, help="blocks of each contender")
    arguments = parser.parse_args()
    if arguments.peers is not None:
        sys.path.append(str(arguments.peers))  # behind everything else: our nvidia-ml-py stays the one that is used
    logging.disable(logging.CRITICAL)  # nvitop prints a traceback for each function that a driver lacks
    with tempfile.TemporaryDirectory() as folder:
        try:
            library = NvmlLibrary(build(Path(folder)))
        except CannotBuildError as error:
            print(f"cannot be measured here: {error}")
            return 0
        library.reset(["h200"] * CARDS)
        with library.in_pynvml() as pynvml:
            return quick(library, pynvml, arguments.rounds) + parallel(library, pynvml, arguments.rounds)


def quick(library: NvmlLibrary, pynvml: Any, rounds: int) -> int:
    """The fast fields of all cards."""
    for card in range(CARDS):
        library.processes(card, [])  # processes are not among them, so there are none
    # by this clock a second passes between two readings, so that each reads every field
    nvml = Nvml(pynvml, hidden_processes=lambda: False, clock=count().__next__)
    nvml.start()
    seldom = [(card, nvml.read_slow(card)) for card in nvml.cards()]
    sampler = a_sampler(nvml, slow_interval_s=1e9)
    sampler.read_round()  # lists the cards, reads slow fields
    contenders: dict[str, Sample] = {
        BARE: bare(library, CARDS),
        "raw pynvml": lambda: [raw(pynvml, handle) for handle in handles],
        ONE_THREAD: lambda: [nvml.read(card, device="cuda:0", time_unix_s=0.0, slow=old) for card, old in seldom],
        THREADS: sampler.read_round,
    }
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(CARDS)]
    peers = {"nvitop as_snapshot()": nvitop, "gpustat new_query()": gpustat}
    absent = {}
    for name, peer in peers.items():
        try:
            with a_pynvml_of_its_own(library):
                version, sample = peer()
                sample()
            contenders[f"{name.replace(' ', f' {version} ', 1)}"] = sample
        except Exception as error:  # a failing peer gets a line without a figure
            absent[name] = f"{type(error).__name__}: {error}"
    costs = measured(library, contenders, rounds)
    sampler.stop()

    print(
        f"one quick sample (memory, utilization, temperature, power, clocks) of {CARDS} cards, the driver sleeps"
        f" {DELAY_US} us a call:"
    )
    least = costs[BARE]
    for name, cost in costs.items():
        in_turn = name != THREADS  # calls that overlap do not add up
        exact = f"{cost.exact_s * 1e3:8.2f} ms ({cost.exact_s / least.exact_s:6.2f} x)" if in_turn else f"{'—':>22}"
        print(
            f"  {name:<28} {cost.delayed_s * 1e3:8.2f} ms measured ({cost.delayed_s / least.delayed_s:6.2f} x bare)"
            f"   at exactly {DELAY_US} us {exact}   {cost.own_s * 1e6:8.0f} us of its own   {cost.calls:4d} calls"
        )
    for name, why in absent.items():
        print(f"  {name}: not measured, absent or it refuses to run ({why})")
    ours, threads = costs[ONE_THREAD], costs[THREADS]
    missed = verdict("one thread against bare ctypes, measured", ours.delayed_s / least.delayed_s, BARE_LIMIT)
    missed += verdict(f"the same at exactly {DELAY_US} us", ours.exact_s / least.exact_s, BARE_LIMIT)
    missed += verdict(f"calls of one sample, for {CARDS} x {FIELDS} fields", ours.calls, CARDS * FIELDS)
    rival = next((cost for name, cost in costs.items() if name.startswith("nvitop")), None)
    if rival is None:
        print("  not compared with nvitop")
        return missed
    missed += verdict(
        "as the window reads it (threads) against nvitop, measured", threads.delayed_s / rival.delayed_s, NVITOP_LIMIT
    )
    shares = {
        "measured": ours.delayed_s / rival.delayed_s,
        f"at exactly {DELAY_US} us": ours.exact_s / rival.exact_s,
        "with a driver that takes no time": ours.own_s / rival.own_s,
        f"calls alone, {ours.calls}/{rival.calls}": ours.calls / rival.calls,
    }
    print("       on one thread: " + ", ".join(f"{share:.3f} {what}" for what, share in shares.items()))
    print(
        "       two of nvitop's calls for each card ask for PCIe throughput, which a real driver measures for 20 ms:\n"
        f"       {2 * CARDS * 20} ms more there; ours asks for it every two seconds, outside of the quick sample"
    )
    return missed


def parallel(library: NvmlLibrary, pynvml: Any, rounds: int) -> int:
    """Everything that changes, of all cards, by the sampler's threads and one card after the other."""
    library.reset(["h200"] * CARDS)
    library.delay(SLOW_DELAY_US)
    nvml = Nvml(pynvml, hidden_processes=lambda: False, clock=count().__next__)
    nvml.start()
    cards = nvml.cards()
    sampler = a_sampler(nvml, slow_interval_s=1e-9)  # everything in every round
    sampler.read_round()

    def in_turn() -> None:
        for card in cards:
            nvml.read(card, device="cuda:0", time_unix_s=0.0, slow=nvml.read_slow(card))

    contenders: dict[str, Sample] = {"one after the other": in_turn, "the sampler's threads": sampler.read_round}
    calls = {name: counted(library, sample) for name, sample in contenders.items()}
    times = interleaved(contenders, max(rounds // 3, 5), 0.05)
    sampler.stop()
    ratio = times["one after the other"] / times["the sampler's threads"]
    print(
        f"one full sample (all fields that change, processes) of {CARDS} cards, the driver sleeps {SLOW_DELAY_US} us a"
        " call:"
    )
    for name, seconds in times.items():
        print(f"  {name:<32} {seconds * 1e3:8.2f} ms   {calls[name]:4d} calls")
    return verdict("threads faster than one after the other by", ratio, PARALLEL_LIMIT, least=True)


def verdict(what: str, value: float, limit: float, *, least: bool = False) -> int:
    """Print a figure with its limit; 1 if it is missed."""
    good = value >= limit if least else value <= limit
    print(f"  {'ok  ' if good else 'MISS'} {what}: {value:.3g}, wanted {'>=' if least else '<='} {limit:.3g}")
    return 0 if good else 1


def measured(library: NvmlLibrary, contenders: dict[str, Sample], rounds: int) -> dict[str, Cost]:
    """Each contender with and without the delay."""
    library.delay(0)
    calls = {name: counted(library, sample) for name, sample in contenders.items()}
    own = interleaved(contenders, rounds, 0.01)
    library.delay(DELAY_US)
    delayed = interleaved(contenders, rounds, 0.02)
    library.delay(0)
    return {name: Cost(delayed[name], own[name], calls[name]) for name in contenders}


def counted(library: NvmlLibrary, sample: Sample) -> int:
    """NVML calls of one sample."""
    library.reset_calls()
    sample()
    return library.calls()


def interleaved(contenders: dict[str, Sample], rounds: int, block_s: float) -> dict[str, float]:
    """Median seconds of one sample over the blocks of each contender, which alternate; a block lasts about
    `block_s`."""
    repeats = {}
    for name, sample in contenders.items():
        sample()
        repeats[name] = max(int(block_s / seconds_of(sample, 1)), 1)
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, sample in contenders.items():
            if number < FEW or repeats[name] > 1:  # one that takes longer than a block has few of them
                found[name].append(seconds_of(sample, repeats[name]) / repeats[name])
    return {name: statistics.median(values) for name, values in found.items()}


def seconds_of(sample: Sample, times: int) -> float:
    """Wall time of so many samples."""
    started = time.perf_counter()
    for _ in range(times):
        sample()
    return time.perf_counter() - started


def a_sampler(nvml: Nvml, slow_interval_s: float) -> Sampler:
    """The application's sampler, with a CPU reader that costs nothing."""
    cpu = CpuReader(CpuFacts("x", 1, 1 << 40, None), percent=lambda: 5.0)
    return Sampler(
        lambda event: None, nvml, cpu, slow_interval_s=slow_interval_s, details_interval_s=1e9, list_interval_s=1e9
    )


def raw(nvml: Any, handle: Any) -> tuple[Any, ...]:
    """The fast fields with pynvml's own functions."""
    return (
        nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2),
        nvml.nvmlDeviceGetUtilizationRates(handle),
        nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU),
        nvml.nvmlDeviceGetPowerUsage(handle),
        nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
    )


def bare(library: NvmlLibrary, cards: int) -> Sample:
    """The bare calls: buffers, references and functions are created once, answers are ignored."""
    pynvml = importlib.import_module("pynvml")
    lib = ctypes.CDLL(str(library.path))
    number, clock, memory_clock = (ctypes.c_uint() for _ in range(3))
    memory, rates, temperature = (
        pynvml.c_nvmlMemory_v2_t(),
        pynvml.c_nvmlUtilization_t(),
        pynvml.c_nvmlTemperature_v1_t(),
    )
    memory.version, temperature.version = pynvml.nvmlMemory_v2, pynvml.nvmlTemperature_v1
    temperature.sensorType = pynvml.NVML_TEMPERATURE_GPU
    sm, mem = ctypes.c_uint(pynvml.NVML_CLOCK_SM), ctypes.c_uint(pynvml.NVML_CLOCK_MEM)
    calls = []
    for index in range(cards):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        calls += [
            (lib.nvmlDeviceGetMemoryInfo_v2, (handle, ctypes.byref(memory))),
            (lib.nvmlDeviceGetUtilizationRates, (handle, ctypes.byref(rates))),
            (lib.nvmlDeviceGetTemperatureV, (handle, ctypes.byref(temperature))),
            (lib.nvmlDeviceGetPowerUsage, (handle, ctypes.byref(number))),
            (lib.nvmlDeviceGetClockInfo, (handle, sm, ctypes.byref(clock))),
            (lib.nvmlDeviceGetClockInfo, (handle, mem, ctypes.byref(memory_clock))),
        ]
    assert not any(function(*given) for function, given in calls), "a bare call failed"

    def sample() -> None:
        for function, given in calls:
            function(*given)

    return sample


@contextmanager
def a_pynvml_of_its_own(library: NvmlLibrary) -> Iterator[None]:
    """Imports in this block get a second copy of pynvml on the same driver, because gpustat patches its copy."""
    spec = importlib.util.find_spec("pynvml")
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    before, sys.modules["pynvml"] = sys.modules["pynvml"], copy
    try:
        spec.loader.exec_module(copy)
        copy.nvmlLib = ctypes.CDLL(str(library.path))
        yield
    finally:
        sys.modules["pynvml"] = before


def nvitop() -> tuple[str, Sample]:
    """nvitop's snapshot of all devices."""
    module = importlib.import_module("nvitop")
    devices = module.Device.all()
    assert len(devices) == CARDS, f"it lists {len(devices)} cards"
    return module.__version__, lambda: [device.as_snapshot() for device in devices]


def gpustat() -> tuple[str, Sample]:
    """gpustat's query of all cards (it sleeps 0.1 s for each)."""
    module = importlib.import_module("gpustat")
    assert len(module.new_query()) == CARDS, "it does not list all cards"
    return module.__version__, module.new_query


if __name__ == "__main__":
    sys.exit(main())
