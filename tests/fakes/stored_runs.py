"""Made-up runs of a history, for the tests of the panels that show them. Without the feature of a kind, a test that
makes a run of it skips."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from devexplorer.core.records import BenchResult, Conditions, DeviceInfo, MatmulResult, MatmulSpec, Spread, StoredRun

if TYPE_CHECKING:
    from devexplorer.core.bandwidth.kind import BandwidthResult
    from devexplorer.core.model_steps.kind import ModelResult
    from devexplorer.core.scaling.kind import ScalingResult
    from devexplorer.core.sweep.kind import SweepResult

BEGAN_UNIX_S = 1_794_900_000.0
H200 = DeviceInfo(
    id="cuda:0",
    kind="cuda",
    name="NVIDIA H200",
    uuid="GPU-00000000-1111-2222-3333-444444444444",
    memory_total_bytes=141 << 30,
    datasheet_tflops={
        "float64": 67.0,
        "float32": 67.0,
        "tf32": 494.0,
        "float16": 989.0,
        "bfloat16": 989.0,
        "float8_e4m3fn": 1979.0,
    },
    memory_gb_s=4800.0,
)
T4 = DeviceInfo(
    id="vgpu:0",
    kind="virtual",
    name="Tesla T4",
    memory_total_bytes=16 << 30,
    datasheet_tflops={"float32": 8.1, "float16": 65.0, "int8": 130.0},
    memory_gb_s=320.0,
    simulated=True,
)
HERE_CPU = DeviceInfo(id="cpu", kind="cpu", name="Example CPU", threads=16)


def spread(median: float, share: float = 0.01) -> Spread:
    """Median, and the middle 60 % within `share` of it."""
    return Spread(median, median * (1 - share), median * (1 + share))


def stored(
    result: BenchResult, number: int = 1, info: DeviceInfo = H200, tags: tuple[str, ...] = (), **known: object
) -> StoredRun:
    """A run of the history, an hour after the one before."""
    began = BEGAN_UNIX_S + 3600.0 * number
    fields: dict[str, object] = {
        "started_unix_s": began,
        "ended_unix_s": began + 10,
        "host": "gpu-7",
        "device": info.id,
        "device_name": info.name,
        "uuid": info.uuid,
        "simulated": info.simulated,
        "torch_version": "2.13.0",
        "python_version": "3.11.7",
    }
    if info.kind == "cuda":
        fields |= {
            "driver_version": "570.124.06",
            "cuda_version": "12.8",
            "sm_clock_mhz": spread(1755, 0.02),
            "power_w": spread(612, 0.03),
            "temperature_c": spread(64, 0.03),
            "power_cap_w": 700.0,
            "throttle_reasons": (),
        }
    imported = bool(known.pop("imported", False))
    return StoredRun(id=number, result=result, conditions=Conditions(**(fields | known)), tags=tags, imported=imported)


def matmul(
    median: float = 798.0,
    side: int | tuple[int, int, int] = 8192,
    dtype: str = "bfloat16",
    info: DeviceInfo = H200,
    *,
    samples: bool = True,
    **more: object,
) -> MatmulResult:
    """A product; its samples rise and fall by 1 %."""
    m, n, k = (side, side, side) if isinstance(side, int) else side
    spec = MatmulSpec(device=info.id, dtype=dtype, m=m, n=n, k=k, mode="burst", seconds=2.0)
    fields: dict[str, object] = {
        "run": 1,
        "stopped": False,
        "simulated": info.simulated,
        "seconds": 2.0,
        "iterations": 400,
        "blocks": 40,
        "tflops": spread(median, 0.0 if info.simulated else 0.008),
        "noise": 0.0 if info.simulated else 0.0093,
        "verified": True,
        "datasheet_tflops": info.datasheet_tflops.get(dtype),
        "samples_tflops": tuple(median * (1 + 0.01 * math.sin(7.3 * at)) for at in range(80)) if samples else (),
        "torch_version": "2.13.0",
    }
    return MatmulResult(spec=spec, **(fields | more))


def reached(side: float, peak: float, gb_s: float, item_bytes: int = 2) -> float:
    """TFLOP/s of a square product on an ideal roofline with a launch cost."""
    seconds = max(2 * side**3 / (peak * 1e12), 3 * side * side * item_bytes / (gb_s * 1e9)) + 4e-6
    return 2 * side**3 / seconds / 1e12


def sweep(
    info: DeviceInfo = H200, dtype: str = "bfloat16", sides: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192)
) -> SweepResult:
    """Squares, of which the last one does not fit."""
    kind = pytest.importorskip("devexplorer.core.sweep.kind")
    peak, gb_s = info.datasheet_tflops.get(dtype, 1.0) * 0.8, (info.memory_gb_s or 30.0) * 0.9
    cells = [kind.SweepCell(side, side, side, spread(reached(side, peak, gb_s)), 50) for side in sides]
    cells.append(kind.SweepCell(1 << 20, 1 << 20, 1 << 20, reason="6.00 TiB are needed, 140.00 GiB are free"))
    spec = kind.SweepSpec(device=info.id, dtype=dtype, shapes=tuple((cell.m, cell.n, cell.k) for cell in cells))
    return kind.SweepResult(
        run=2,
        stopped=False,
        simulated=info.simulated,
        seconds=1.2,
        spec=spec,
        cells=tuple(cells),
        datasheet_tflops=info.datasheet_tflops.get(dtype),
    )


def bandwidth(
    info: DeviceInfo = H200, gb_per_s: float = 2100.0, sizes: tuple[int, ...] = (1 << 16, 1 << 24, 1 << 28)
) -> BandwidthResult:
    """Copies from the host, and within the device, in which a size of `1 << 28` reaches `gb_per_s`."""
    kind = pytest.importorskip("devexplorer.core.bandwidth.kind")
    rows = []
    for source in ("cpu", info.id):
        for size in sizes:
            full = gb_per_s if source == info.id else 52.0
            rate = full / (1 + (1 << 20) / size)
            host = source == "cpu" and info.id != "cpu"
            rows.append(
                kind.BandwidthRow(
                    source=source,
                    destination=info.id,
                    bytes=size,
                    pinned=True if host else None,
                    gb_per_s=spread(rate),
                    iterations=30,
                    verified=True,
                    simulated=info.simulated,
                )
            )
    spec = kind.BandwidthSpec(sources=("cpu", info.id), destinations=(info.id,), sizes=sizes, pinned=(True,))
    return kind.BandwidthResult(
        run=3, stopped=False, simulated=info.simulated, seconds=0.9, spec=spec, rows=tuple(rows), verified=True
    )


def scaling(first: DeviceInfo = H200, count: int = 2) -> ScalingResult:
    """Two jobs at once."""
    kind = pytest.importorskip("devexplorer.core.scaling.kind")
    names = tuple(f"{first.id.split(':')[0]}:{number}" for number in range(count))
    return kind.ScalingResult(
        run=4,
        stopped=False,
        simulated=first.simulated,
        seconds=0.2,
        spec=kind.ScalingSpec(devices=names),
        parallel_seconds=0.31,
        sequential_seconds=0.6,
        walls=tuple(kind.DeviceWall(name, 0.3) for name in names),
    )


def model_run(info: DeviceInfo = H200) -> ModelResult:
    """Training steps."""
    kind = pytest.importorskip("devexplorer.core.model_steps.kind")
    return kind.ModelResult(
        run=5,
        stopped=False,
        simulated=info.simulated,
        seconds=5.0,
        iterations=240,
        spec=kind.ModelSpec(
            target="vgg16-bn", device=info.id, batch=32, train=True, optimizer="adamw", autocast="bfloat16"
        ),
        samples_per_s=spread(1530.0, 0.04),
        step_seconds=spread(0.021, 0.04),
        tflops=spread(142.0, 0.04),
        peak_memory_bytes=9 << 30,
    )


def fifty() -> list[StoredRun]:
    """Fifty runs of all kinds on three devices, the newest first."""
    made: list[StoredRun] = []
    dtypes = ("bfloat16", "float16", "tf32", "float32", "float8_e4m3fn")
    shares = (0.807, 0.79, 0.71, 0.76, 0.66)
    for number in range(1, 51):
        info = (H200, H200, T4, HERE_CPU)[number % 4]
        if number % 10 == 0:
            made.append(stored(bandwidth(H200), number, H200))
        elif number % 11 == 0:
            made.append(
                stored(
                    sweep(info if info is not HERE_CPU else T4, "float16"), number, info if info is not HERE_CPU else T4
                )
            )
        elif number % 13 == 0:
            made.append(stored(model_run(info), number, info))
        elif number % 17 == 0:
            made.append(stored(scaling(T4), number, T4))
        elif info is HERE_CPU:
            side = 128 << number // 4 % 5
            made.append(
                stored(
                    matmul(0.16 * (1 + number // 4 % 5), side, "float32", info, noise=0.071), number, info, threads=16
                )
            )
        elif info is T4:
            side = 256 << number // 4 % 6
            made.append(stored(matmul(reached(side, 26, 280), side, "float16", info), number, info, tags=("before",)))
        else:
            dtype = dtypes[number % 5]
            side = 512 << number // 2 % 6
            peak = H200.datasheet_tflops[dtype] * shares[number % 5]
            width = {"float32": 4, "tf32": 4, "float8_e4m3fn": 1}.get(dtype, 2)
            held = ("power cap",) if number % 7 == 0 else ()
            tags = (("driver-570", "nightly"), ("before",), ())[number % 3]
            made.append(
                stored(matmul(reached(side, peak, 4200, width), side, dtype), number, tags=tags, throttle_reasons=held)
            )
    return made[::-1]
