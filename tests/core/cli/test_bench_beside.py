"""Readings during a benchmark: those of the measured card and period, and none if no card is measured."""

from __future__ import annotations

import threading
import time

import pytest
from fakes.nvml import FakeCard, FakeNvml

from devexplorer.core.bandwidth.kind import BandwidthSpec
from devexplorer.core.cli.bench import Beside
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.records import (
    BenchPreparing,
    BenchSpec,
    BenchStarted,
    Conditions,
    DeviceInfo,
    MatmulResult,
    MatmulSpec,
    Spread,
)

UUIDS = tuple(f"GPU-00000000-0000-0000-0000-00000000000{n}" for n in range(2))
CPU = DeviceInfo(id="cpu", kind="cpu", name="some CPU", threads=4)
CUDA = tuple(
    DeviceInfo(id=f"cuda:{1 - n}", kind="cuda", name="Tesla T4", uuid=uuid, cuda_ordinal=1 - n)
    for n, uuid in enumerate(UUIDS)
)
"""CUDA's order of cards is the reverse of NVML's."""


def matmul(device: str) -> MatmulSpec:
    return MatmulSpec(device=device, m=8, n=8, k=8)


def result(spec: MatmulSpec) -> MatmulResult:
    spread = Spread(median=1.0, p20=1.0, p80=1.0)
    return MatmulResult(
        run=1,
        spec=spec,
        tflops=spread,
        blocks=1,
        stopped=False,
        simulated=False,
        seconds=1.0,
        torch_version="2.13",
        threads=3,
    )


def begun(beside: Beside, spec: BenchSpec) -> None:
    beside.see(BenchPreparing(run=1, spec=spec, simulated=False))
    beside.see(BenchStarted(run=1, time_unix_s=time.time()))


def until_read(beside: Beside, spec: MatmulSpec) -> Conditions:
    """The conditions as soon as there is a reading; fails if there is none within 10 s."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        found = beside.conditions(result(spec), time.time())
        if found.power_w is not None and found.throttle_reasons is not None:
            return found
        time.sleep(0.01)
    raise AssertionError("no reading came")


def test_readings_of_the_card_under_test() -> None:
    fake = FakeNvml(
        FakeCard(uuid=UUIDS[0], power_mw=30_000, clock=1000),
        FakeCard(uuid=UUIDS[1], power_mw=60_000, clock=1500, throttle=4),
    )
    spec = matmul("cuda:0")
    with Beside((CPU, *CUDA), [spec], Nvml(fake)) as beside:
        begun(beside, spec)
        found = until_read(beside, spec)
    assert (found.device, found.device_name, found.uuid) == ("cuda:0", "Tesla T4", UUIDS[1])
    assert found.sm_clock_mhz == Spread(median=1500, p20=1500, p80=1500)
    assert found.power_cap_w == 70
    assert found.throttle_reasons == ("power cap",)
    assert found.driver_version
    assert (found.torch_version, found.threads) == ("2.13", 3)


def test_what_was_seen_while_it_warmed_up_does_not_count() -> None:
    fake = FakeNvml(FakeCard(uuid=UUIDS[0]))
    spec = matmul("cuda:1")
    with Beside((CPU, *CUDA), [spec], Nvml(fake)) as beside:
        begun(beside, spec)
        until_read(beside, spec)
        later = time.time() + 1000
        beside.see(BenchStarted(run=1, time_unix_s=later))
        assert beside.conditions(result(spec), later + 1).power_w is None


@pytest.mark.parametrize(
    "spec",
    [matmul("cpu"), BandwidthSpec(sources=("cpu",), destinations=("cpu",)), matmul("vgpu:0")],
    ids=["cpu", "copies", "virtual"],
)
def test_nothing_runs_beside_where_no_card_is_measured(spec: BenchSpec) -> None:
    fake = FakeNvml(FakeCard(uuid=UUIDS[0]))
    virtual = DeviceInfo(id="vgpu:0", kind="virtual", name="Tesla T4", simulated=True)
    with Beside((CPU, *CUDA, virtual), [spec], Nvml(fake)) as beside:
        begun(beside, spec)
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("sampler")]
        assert not fake.calls
        run = result(matmul(spec.device))
        found = beside.conditions(run, time.time())
    assert (found.device, found.simulated) == (spec.device, spec.device == virtual.id)
    assert found.device_name == {"cpu": CPU.name, "vgpu:0": virtual.name}[spec.device]
    assert (found.sm_clock_mhz, found.power_w, found.temperature_c, found.throttle_reasons) == (None, None, None, None)


def test_a_card_without_a_driver_library_is_measured_all_the_same() -> None:
    fake = FakeNvml()
    fake.fail("nvmlInit", fake.error(fake.NVML_ERROR_LIBRARY_NOT_FOUND))
    spec = matmul("cuda:0")
    with Beside((CPU, *CUDA), [spec], Nvml(fake)) as beside:
        begun(beside, spec)
        found = beside.conditions(result(spec), time.time())
    assert (found.uuid, found.power_w) == (UUIDS[1], None)


def test_the_conditions_of_the_run_that_ended_last() -> None:
    with Beside((CPU,), [matmul("cpu")]) as beside:
        begun(beside, matmul("cpu"))
        first = beside.conditions(result(matmul("cpu")), time.time())
        begun(beside, matmul("cpu"))
        second = beside.conditions(result(matmul("cpu")), time.time())
    assert first.started_unix_s <= first.ended_unix_s <= second.started_unix_s <= second.ended_unix_s
