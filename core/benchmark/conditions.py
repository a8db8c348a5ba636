"""Under which conditions a run was measured, from what the window or the command line sees meanwhile; as text, all of
one run as rows, and what differs between runs. Any one thread; no torch, no process started.

`ConditionsWatch` is made when a run begins, sees every sample, and ends in a `Conditions`; `RunConditions` has one for
each run. What is unknown stays None.
"""

from __future__ import annotations

import os
import platform
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import fields, replace

import devexplorer
from devexplorer.core.base import MISSING, Clock, EventHandlers, handles, number_text
from devexplorer.core.benchmark.kind import kind_of, title
from devexplorer.core.benchmark.statistics import Samples, spread
from devexplorer.core.records import (
    BenchEnded,
    BenchPreparing,
    BenchResult,
    BenchSpec,
    BenchStarted,
    Conditions,
    DeviceDetails,
    DeviceInfo,
    DeviceSample,
    EngineLost,
    EngineReady,
    Spread,
    StoredRun,
)
from devexplorer.core.telemetry.device_facts import held_down

MOST_KEPT = 4096
"""Readings of a run, which has no end where it runs until stopped."""
MOST_PROCESSES = 20
NEAR_S = 5.0
"""A power cap and a list of processes read so long before or after the run count as its own: they are read every 2 s
and seldom change."""
AVERAGED_S = 1.0
"""On cards since Ampere a reading of the power is the average of the second before it: readings of a run's first second
are of what was before."""

_SPREADS = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")
"""Fields of samples and of `Conditions`."""


class HostInfo(NamedTuple):
    """What is the same for every run of this process; `here()` finds it out."""

    host: str = ""
    python_version: str | None = None
    devexplorer_version: str | None = None
    git_revision: str | None = None
    pids: frozenset[int] = frozenset()
    """This process, which is not one of the others."""


def here() -> HostInfo:
    """Asks the system once; some files are read, so not in a frame of the window."""
    version = devexplorer.__version__
    return HostInfo(platform.node(), platform.python_version(), version, git_revision(), frozenset({os.getpid()}))


class ConditionsWatch:
    """`see` samples of all devices, from a little before the run on; `begin` when warm-up is over; `finish` at the
    end."""

    def __init__(
        self,
        device: str,
        *,
        started_unix_s: float,
        info: DeviceInfo | None = None,
        details: DeviceDetails | None = None,
        engine: EngineReady | None = None,
        here: HostInfo = HostInfo(),  # noqa: B008 - frozen
    ) -> None:
        """`device` by id; `started_unix_s` until `begin` says better."""
        self._device = device
        self._started_unix_s = started_unix_s
        self._info, self._details, self._engine, self._here = info, details, engine, here
        self._kept = Samples[tuple[float, tuple[float | None, ...]]](MOST_KEPT)
        self._before: DeviceSample | None = None
        """The last sample before the run."""
        self._cap_w: float | None = None
        self._reasons: dict[str, None] | None = None
        self._others: dict[str, None] | None = None

    def begin(self, started_unix_s: float) -> None:
        """Measuring begins now: forget what was seen of the warm-up."""
        self._started_unix_s = started_unix_s
        self._kept = Samples(MOST_KEPT)
        self._reasons = self._others = None
        if self._before is not None and started_unix_s - self._before.time_unix_s <= NEAR_S:
            self._slow(self._before)

    def see(self, sample: DeviceSample) -> None:
        """Take a sample into account, if it is of this device."""
        if sample.device != self._device:
            return
        if sample.time_unix_s < self._started_unix_s:
            self._before = sample
            if self._started_unix_s - sample.time_unix_s <= NEAR_S:
                self._slow(sample)
            return
        self._before = sample
        self._slow(sample)
        if sample.throttle_reasons is not None:
            self._reasons = (self._reasons or {}) | dict.fromkeys(held_down(sample.throttle_reasons))
        if not sample.simulated and sample.time_unix_s - self._started_unix_s < AVERAGED_S:
            sample = replace(sample, power_w=None)
        self._kept.add([(sample.time_unix_s, tuple(getattr(sample, name) for name in _SPREADS))])

    def _slow(self, sample: DeviceSample) -> None:
        """What changes seldom, and counts from shortly before the run on."""
        if sample.power_cap_w is not None:
            self._cap_w = sample.power_cap_w
        if sample.processes is not None and self._device != "cpu":  # everybody uses the CPU
            own = self._here.pids | ({self._engine.pid} if self._engine is not None else set())
            names = (f"{use.name or 'unknown'} ({use.pid})" for use in sample.processes if use.pid not in own)
            self._others = (self._others or {}) | dict.fromkeys(names)

    def finish(
        self, ended_unix_s: float, *, torch_version: str | None = None, threads: int | None = None
    ) -> Conditions:
        """The conditions of everything between beginning and end. `torch_version` and `threads` of the result, where it
        has them."""
        info, details, engine = self._info, self._details, self._engine
        drivers = [known.driver_version for known in (info, details) if known is not None]
        torch_versions = [torch_version, *([engine.torch_version] if engine is not None else [])]
        python_versions = [*([engine.python_version] if engine is not None else []), self._here.python_version]
        simulated = info is not None and info.simulated
        spreads = {
            name: _spread(values[index] for time_s, values in self._kept.kept if time_s <= ended_unix_s)
            for index, name in enumerate(_SPREADS)
        }
        others = None if self._others is None else tuple(sorted(self._others))
        if others is not None and len(others) > MOST_PROCESSES:
            others = (*others[:MOST_PROCESSES], f"and {len(others) - MOST_PROCESSES} more")
        if threads is None and engine is not None and self._device == "cpu":
            threads = engine.threads
        return Conditions(
            started_unix_s=self._started_unix_s,
            ended_unix_s=ended_unix_s,
            host=self._here.host,
            device=self._device,
            device_name=info.name if info is not None else "",
            uuid=info.uuid if info is not None else None,
            simulated=simulated,
            driver_version=_first(drivers),
            cuda_version=engine.cuda_version if engine is not None else None,
            torch_version=_first(torch_versions),
            python_version=_first(python_versions),
            devexplorer_version=self._here.devexplorer_version,
            git_revision=self._here.git_revision,
            threads=threads,
            power_cap_w=self._cap_w,
            throttle_reasons=None if self._reasons is None else tuple(self._reasons),
            other_processes=others,
            **spreads,
        )


class RunConditions(EventHandlers):
    """`handle` every event and `set_devices` every list; `conditions` of a run that has just ended."""

    def __init__(self, here: HostInfo = HostInfo(), clock: Clock = time.time) -> None:  # noqa: B008 - frozen
        self._here = here
        self._clock = clock
        self._infos: dict[str, DeviceInfo] = {}
        self._details: dict[str, DeviceDetails] = {}
        self._engine: EngineReady | None = None
        self.watches: dict[int, ConditionsWatch] = {}
        """Of the runs that have not ended: without any, readings need not be handled."""

    def set_devices(self, devices: Iterable[DeviceInfo]) -> None:
        """What there is from now on."""
        self._infos = {info.id: info for info in devices}

    @handles(DeviceSample)
    def _sample(self, sample: DeviceSample) -> None:
        for watch in self.watches.values():
            watch.see(sample)

    @handles(DeviceDetails)
    def _device_details(self, details: DeviceDetails) -> None:
        self._details[details.device] = details

    @handles(EngineReady)
    def _engine_ready(self, event: EngineReady) -> None:
        self._engine = event

    @handles(BenchPreparing)
    def _preparing(self, event: BenchPreparing) -> None:
        self.watches[event.run] = self._watch(event.spec)

    @handles(BenchStarted)
    def _started(self, event: BenchStarted) -> None:
        if event.run in self.watches:
            self.watches[event.run].begin(event.time_unix_s)

    def conditions(self, result: BenchResult, ended_unix_s: float) -> Conditions:
        """What was seen during the run of this result."""
        watch = self.watches.get(result.run) or self._watch(result.spec)
        return watch.finish(ended_unix_s, torch_version=result.torch_version or None, threads=result.threads)

    def _watch(self, spec: BenchSpec) -> ConditionsWatch:
        return ConditionsWatch(
            spec.device,
            started_unix_s=self._clock(),
            info=self._infos.get(spec.device),
            details=self._details.get(spec.device),
            engine=self._engine,
            here=self._here,
        )


def _spread(values: Iterable[float | None]) -> Spread | None:
    known = [float(value) for value in values if value is not None]
    return spread(known) if known else None


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)


# --- the revision of a checkout ---------------------------------------------------------------------------------------

_REVISION = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def git_revision(root: Path | None = None) -> str | None:
    """The commit that DevExplorer runs from, 40 (or 64) hex digits; None where it is installed and no checkout, or
    cannot be read.

    Changes that are not committed do not show. Read from the files that gitrepository-layout(5) describes; `root`: the
    folder with `.git`.
    """
    root = Path(__file__).resolve().parents[2] if root is None else root
    try:
        folder = root / ".git"
        if os.path.isfile(folder):  # a worktree or a submodule
            folder = root / folder.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (folder / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref:"):
            return _revision(head)
        name = head.removeprefix("ref:").strip()
        if ".." in name.split("/"):
            return None
        shared = folder / "commondir"
        common = folder / shared.read_text(encoding="utf-8").strip() if os.path.isfile(shared) else folder
        for place in (folder, common):
            if os.path.isfile(place / name):
                return _revision((place / name).read_text(encoding="utf-8").strip())
        for line in (common / "packed-refs").read_text(encoding="utf-8").splitlines():
            if line.endswith(f" {name}"):
                return _revision(line.partition(" ")[0])
    except (OSError, ValueError):  # ValueError: bytes that are no text
        pass
    return None


def _revision(text: str) -> str | None:
    return text if _REVISION.fullmatch(text) else None


class RunRecorder(RunConditions):
    """`keep` is called with every result and its conditions."""

    def __init__(
        self,
        keep: Callable[[BenchResult, Conditions], None],
        *,
        find_here: Callable[[], HostInfo] = here,
        clock: Clock = time.time,
    ) -> None:
        super().__init__(clock=clock)
        self.keep = keep
        self._finder = threading.Thread(target=self._find, args=(find_here,), name="here", daemon=True)

    def start(self) -> None:
        """Find out what this machine and this program are called: files are read for that, so on a thread that ends at
        once."""
        self._finder.start()

    def join(self, deadline_s: float) -> bool:
        """Wait for that thread."""
        if self._finder.ident is not None:
            self._finder.join(max(deadline_s, 0.0))
        return not self._finder.is_alive()

    @handles(EngineLost)
    def _engine_lost(self, event: EngineLost) -> None:
        self.watches.clear()

    @handles(BenchEnded)
    def _ended(self, event: BenchEnded) -> None:
        if event.result is not None:
            self.keep(event.result, self.conditions(event.result, event.time_unix_s))
        self.watches.pop(event.run, None)

    def _find(self, find_here: Callable[[], HostInfo]) -> None:
        self._here = find_here()


class ConditionRow(NamedTuple):
    """One condition of one run."""

    label: str
    value: str
    """`—` where it is not known."""


class Differing(NamedTuple):
    """One condition that is not the same in all runs."""

    label: str
    values: tuple[str, ...]
    """One per run, in their order."""


class _Condition(NamedTuple):
    label: str
    field: str
    unit: str = ""
    tolerance: float = 0.0
    """Readings this far apart, as a share of the larger, are the same."""
    none: str = ""
    """What is written for an empty list."""

    def text(self, of: Conditions) -> str | None:
        """None: not known."""
        value = getattr(of, self.field)
        if self.field == "device_name":
            value = value or of.device
        if isinstance(value, Spread):
            span = (f"{value.p20:.0f}", f"{value.p80:.0f}")
            return f"{value.median:.0f} {self.unit}" + (f" ({span[0]} to {span[1]})" if len(set(span)) > 1 else "")
        if isinstance(value, tuple):
            return ", ".join(value) or self.none
        if isinstance(value, bool):
            return "yes" if value else "no"
        if value is None or value == "":
            return None
        if self.field == "git_revision":
            return str(value)[:12]
        return f"{number_text(value)} {self.unit}" if self.unit else str(value)

    def median(self, of: Conditions) -> float | None:
        """Of a reading: the number that is compared, within `tolerance`."""
        value = getattr(of, self.field)
        return value.median if isinstance(value, Spread) else None


_CONDITIONS = (
    _Condition("device", "device_name"),
    _Condition("UUID", "uuid"),
    _Condition("host", "host"),
    _Condition("simulated", "simulated"),
    _Condition("driver", "driver_version"),
    _Condition("CUDA", "cuda_version"),
    _Condition("torch", "torch_version"),
    _Condition("Python", "python_version"),
    _Condition("DevExplorer", "devexplorer_version"),
    _Condition("revision", "git_revision"),
    _Condition("threads", "threads"),
    _Condition("SM clock", "sm_clock_mhz", "MHz", 0.01),
    _Condition("memory clock", "memory_clock_mhz", "MHz", 0.01),
    _Condition("power", "power_w", "W", 0.05),
    _Condition("power cap", "power_cap_w", "W"),
    _Condition("temperature", "temperature_c", "°C", 0.05),
    _Condition("throttled by", "throttle_reasons", none="nothing"),
    _Condition("other processes", "other_processes", none="none"),
)

_SPEC_LABELS = {
    "m": "M", "n": "N", "k": "K", "transpose_a": "A transposed", "transpose_b": "B transposed",
    "flush_cache": "cache flushed",
    "block_seconds": "seconds of a block", "seconds": "requested seconds", "iterations": "requested iterations",
    "both_ways": "both ways", "shape_seconds": "seconds per shape", "search_seconds": "seconds of the search",
}  # fmt: skip


def all_conditions(of: Conditions) -> tuple[ConditionRow, ...]:
    """Everything about one run, in reading order."""
    moments = (
        ConditionRow("began", moment_text(of.started_unix_s)),
        ConditionRow("ended", moment_text(of.ended_unix_s)),
    )
    return (*moments, *(ConditionRow(row.label, row.text(of) or MISSING) for row in _CONDITIONS))


def moment_text(time_unix_s: float) -> str:
    """`2026-11-20 13:47:51 UTC`."""
    return datetime.fromtimestamp(time_unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def condition_rows(runs: Sequence[StoredRun]) -> tuple[Differing, ...]:
    """What was asked for differently, then conditions that differ. What one run knows and another does not is no
    difference; readings differ by more than 1 % (clocks) or 5 % (power, temperature).
    """
    rows = list(_asked([run.result.spec for run in runs]))
    for condition in _CONDITIONS:
        texts = [condition.text(run.conditions) for run in runs]
        if condition.tolerance:
            numbers = [number for run in runs if (number := condition.median(run.conditions)) is not None]
            differs = len(numbers) > 1 and max(numbers) - min(numbers) > condition.tolerance * max(numbers)
        else:
            differs = len({text for text in texts if text is not None}) > 1
        if differs:
            rows.append(Differing(condition.label, tuple(text or MISSING for text in texts)))
    return tuple(rows)


def _asked(specs: Sequence[BenchSpec]) -> list[Differing]:
    """Differences between specifications of one kind; the device's id is left to the conditions, which have its
    name."""
    if len({type(spec) for spec in specs}) > 1:
        return [Differing("benchmark", tuple(title(spec) for spec in specs))]
    rows = []
    for field in fields(specs[0]):
        values = [getattr(spec, field.name) for spec in specs]
        if field.name in kind_of(specs[0]).not_compared:
            continue
        if any(value != values[0] for value in values):
            label = _SPEC_LABELS.get(field.name, field.name.replace("_", " "))
            rows.append(Differing(label, tuple(map(_asked_text, values))))
    return rows


def _asked_text(value: object) -> str:
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(_asked_text(entry) for entry in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
