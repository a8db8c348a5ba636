"""What the history stores of a finished run."""

from __future__ import annotations

from devexplorer.core.benchmark.conditions import HostInfo, RunRecorder
from devexplorer.core.records import (
    BenchEnded,
    BenchPreparing,
    BenchResult,
    BenchStarted,
    Conditions,
    DeviceDetails,
    DeviceInfo,
    DeviceSample,
    EngineLost,
    MatmulResult,
    MatmulSpec,
    Spread,
)

SPEC = MatmulSpec(device="cuda:0", m=8, n=8, k=8)
RESULT = MatmulResult(
    run=3,
    spec=SPEC,
    tflops=Spread(1.0, 0.9, 1.1),
    blocks=2,
    seconds=1.0,
    iterations=9,
    stopped=False,
    simulated=False,
    torch_version="2.13.0",
)


def run_recorder() -> tuple[RunRecorder, list[tuple[BenchResult, Conditions]]]:
    kept: list[tuple[BenchResult, Conditions]] = []
    result = RunRecorder(lambda *run: kept.append(run), find_here=lambda: HostInfo(host="forge"), clock=lambda: 100.0)
    result.start()
    assert result.join(5.0)
    result.set_devices([DeviceInfo(id="cuda:0", kind="cuda", name="Tesla T4", uuid="GPU-1")])
    result.handle(DeviceDetails(device="cuda:0", time_unix_s=99.0, driver_version="570.1"))
    return result, kept


def sample(second: float, clock: int, device: str = "cuda:0") -> DeviceSample:
    return DeviceSample(device=device, time_unix_s=second, sm_clock_mhz=clock)


def test_a_run_is_kept_with_the_readings_of_its_device_and_span() -> None:
    watched, kept = run_recorder()
    watched.handle(BenchPreparing(run=3, spec=SPEC, simulated=False))
    watched.handle(sample(100.5, 300))  # the warm-up
    watched.handle(BenchStarted(run=3, time_unix_s=101.0))
    for event in (sample(101.5, 1500), sample(102.0, 1590), sample(102.2, 9999, "cuda:1"), sample(102.5, 1590)):
        watched.handle(event)
    watched.handle(BenchEnded(run=3, time_unix_s=103.0, result=RESULT))
    [(result, conditions)] = kept
    assert result is RESULT
    assert conditions.sm_clock_mhz is not None
    assert conditions.sm_clock_mhz.median == 1590
    assert (conditions.host, conditions.device_name, conditions.uuid, conditions.driver_version) == (
        "forge",
        "Tesla T4",
        "GPU-1",
        "570.1",
    )
    assert (conditions.started_unix_s, conditions.ended_unix_s, conditions.torch_version) == (101.0, 103.0, "2.13.0")


def test_a_run_without_a_result_is_not_kept_and_one_whose_beginning_was_missed_is() -> None:
    watched, kept = run_recorder()
    watched.handle(BenchPreparing(run=1, spec=SPEC, simulated=False))
    watched.handle(BenchEnded(run=1, time_unix_s=101.0, result=None, reason="out of memory"))
    assert kept == []
    watched.handle(EngineLost(reason="killed", will_restart=True, time_unix_s=102.0))
    watched.handle(BenchEnded(run=3, time_unix_s=103.0, result=RESULT))
    [(_, conditions)] = kept
    assert conditions.sm_clock_mhz is None
