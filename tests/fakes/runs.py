"""Made-up benchmark runs, as the history stores them. Without the feature of a kind, a test that makes a run of it
skips."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from devexplorer.core.benchmark.statistics import noise, spread
from devexplorer.core.records import BenchResult, Conditions, MatmulResult, MatmulSpec, Spread, StoredRun

if TYPE_CHECKING:
    from devexplorer.core.bandwidth.kind import BandwidthResult
    from devexplorer.core.history.store import Store
    from devexplorer.core.model_steps.kind import ModelResult
    from devexplorer.core.scaling.kind import ScalingResult
    from devexplorer.core.sweep.kind import SweepResult

BEGAN = 1_800_000_000.0


def around(median: float, share: float = 0.01) -> Spread:
    """A spread whose middle 60 % have this width."""
    return Spread(median=median, p20=median * (1 - share), p80=median * (1 + share))


def samples(median: float, sigma: float = 0.01, count: int = 200, seed: int = 0) -> tuple[float, ...]:
    """Independent ones."""
    return tuple((median * np.exp(np.random.default_rng(seed).normal(0, sigma, count))).tolist())


def matmul(
    measured: Sequence[float] = (), *, device: str = "cuda:0", dtype: str = "bfloat16", size: int = 4096,
    simulated: bool = False,
    median: float = 100.0, **more: object,
) -> MatmulResult:  # fmt: skip
    """With these samples, or only with a spread."""
    spec = MatmulSpec(device=device, dtype=dtype, m=size, n=size, k=size, mode="burst")
    fields: dict[str, object] = {
        "run": 7, "stopped": False, "simulated": simulated, "seconds": 2.0, "iterations": 500, "blocks": 40,
        "torch_version": "2.13.0",
        "verified": True, "tflops": spread(measured) if measured else around(median), "samples_tflops": tuple(measured),
        "noise": noise(measured),
    } | more  # fmt: skip
    return MatmulResult(spec=spec, **fields)


def sweep(device: str = "cuda:0", speed: float = 50.0) -> SweepResult:
    kind = pytest.importorskip("devexplorer.core.sweep.kind")
    cells = (
        kind.SweepCell(256, 256, 256, around(speed / 4), 100),
        kind.SweepCell(512, 512, 512, around(speed), 90),
        kind.SweepCell(1 << 15, 512, 512, None, 0, "out of memory"),
    )
    spec = kind.SweepSpec(device=device, dtype="float32", shapes=tuple((cell.m, cell.n, cell.k) for cell in cells))
    return kind.SweepResult(run=1, stopped=False, simulated=False, seconds=0.6, iterations=190, spec=spec, cells=cells)


def bandwidth(device: str = "cuda:0", speed: float = 12.0) -> BandwidthResult:
    kind = pytest.importorskip("devexplorer.core.bandwidth.kind")
    rows = tuple(
        kind.BandwidthRow(
            source="cpu", destination=device, bytes=size, pinned=pinned, gb_per_s=around(speed * (2 if pinned else 1)),
            seconds=around(size / speed / 1e9), iterations=20, verified=True,
        )
        for size in (1 << 12, 1 << 20)
        for pinned in (True, False)
    )  # fmt: skip
    spec = kind.BandwidthSpec(sources=("cpu",), destinations=(device,), sizes=(1 << 12, 1 << 20))
    return kind.BandwidthResult(
        run=2, stopped=False, simulated=False, seconds=1.0, iterations=80, spec=spec, rows=rows, verified=True
    )


def scaling(parallel: float = 0.34, *, iterations: int = 1000) -> ScalingResult:
    kind = pytest.importorskip("devexplorer.core.scaling.kind")
    spec = kind.ScalingSpec(devices=("vgpu:0", "vgpu:1"), iterations=iterations)
    walls = (kind.DeviceWall("vgpu:0", parallel * 0.98), kind.DeviceWall("vgpu:1", parallel))
    return kind.ScalingResult(
        run=3, stopped=False, simulated=True, seconds=1.2, iterations=4 * iterations, spec=spec,
        parallel_seconds=parallel,
        sequential_seconds=0.68, walls=walls,
    )  # fmt: skip


def model(speed: float = 900.0, target: str = "resnet18", **more: object) -> ModelResult:
    kind = pytest.importorskip("devexplorer.core.model_steps.kind")
    spec = kind.ModelSpec(target=target, device="cuda:0", **more)  # type: ignore[arg-type]
    return kind.ModelResult(
        run=4, stopped=False, simulated=False, seconds=5.0, iterations=400, spec=spec, samples_per_s=around(speed),
        step_seconds=around(8 / speed), flop_per_step=10**10, tflops=around(speed / 100), peak_memory_bytes=1 << 30,
    )  # fmt: skip


def conditions(number: int = 0, **more: object) -> Conditions:
    """Of the run that began `number` minutes after the first."""
    fields: dict[str, object] = {
        "started_unix_s": BEGAN + 60 * number, "ended_unix_s": BEGAN + 60 * number + 3, "host": "node7",
        "device": "cuda:0",
        "device_name": "NVIDIA A10", "uuid": "GPU-aaaa", "driver_version": "570.1", "cuda_version": "12.8",
        "torch_version": "2.13.0",
        "python_version": "3.11.7", "devexplorer_version": "0.1.0", "git_revision": "a" * 40,
        "sm_clock_mhz": around(1410.0),
        "power_w": around(150.0), "temperature_c": around(60.0), "power_cap_w": 150.0, "throttle_reasons": (),
        "other_processes": (),
    } | more  # fmt: skip
    return Conditions(**fields)  # type: ignore[arg-type]


def stored(
    result: BenchResult, number: int = 1, *, tags: tuple[str, ...] = (), imported: bool = False, **more: object
) -> StoredRun:
    """As stored in the history under that number."""
    if result.simulated:
        more = {
            "simulated": True,
            "device": result.spec.device,
            "device_name": "Tesla T4",
            "uuid": None,
            "sm_clock_mhz": None,
        } | more
    return StoredRun(id=number, result=result, conditions=conditions(number, **more), tags=tags, imported=imported)


# a history


def results() -> tuple[BenchResult, ...]:
    """One of each kind."""
    return matmul(samples(100)), sweep(), bandwidth(), scaling(), model(train=True, autocast="float16")


def filled(store: Store) -> list[StoredRun]:
    """One run of each kind, a minute apart."""
    return [store.add(result, conditions(number)) for number, result in enumerate(results())]


def again(path: Path) -> list[StoredRun]:
    """What a new process would read."""
    from devexplorer.core.history.store import Store

    with Store(path) as other:
        return other.runs()


def one_line(words: str | None) -> str:
    """The text, which must be present and on one line."""
    assert words is not None
    assert "\n" not in words
    return words
