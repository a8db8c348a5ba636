"""A calibration finds the factors that a card has: exactly on virtual GPUs, for real on the CPU in the place of a
card."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from fakes.calibrations import calibrated, ran, result, row, with_factors

from devexplorer.core.bandwidth.run import Copier, send
from devexplorer.core.base import BadInput, DoesNotFit
from devexplorer.core.benchmark.timing import CpuTimer
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.planner.calibrate.kind import (
    CalibrateSpec,
    CalibrationRow,
    card_of,
    check_calibrate,
    combined,
    host_factors,
    without,
)
from devexplorer.core.planner.calibrate.run import CalibrateRun, Sizes, convolutions
from devexplorer.core.records import DeviceInfo
from devexplorer.core.virtual.device.cost import (
    HostCall,
    Kind,
    Roofline,
    Work,
    cost_parameters,
    host_seconds,
    overlapped,
    transfer_seconds,
)

PROFILES = load_profiles()
T4, A10, H100 = (PROFILES[name] for name in ("Tesla T4", "NVIDIA A10", "NVIDIA H100 80GB HBM3"))
SMALL = Sizes(elements=4096, tiny=16, sides=(32, 64), images=(1, 2), channels=16, copied=1 << 16)
EXACT = 1e-6
"""The scales of float8 products, four bytes each, are not in the model's work."""


@pytest.fixture
def registry(virtual):
    return DeviceRegistry([TorchBackend(), virtual])


def factors(registry, virtual, card):
    """What a calibration finds on such a virtual GPU."""
    virtual.reset()
    [gpu] = virtual.add([card])
    found = calibrated(registry, gpu.id)
    assert (found.simulated, found.verified, found.unusable) == (True, True, None)
    for each in found.rows:
        assert each.measured is not None, each.reason
        assert card.calibration or each.measured.median == pytest.approx(each.modelled, rel=EXACT), each.text
    return {factor.name: factor.value for factor in combined(found.rows)}


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3", "Tesla P100-SXM2-16GB"])
def test_a_virtual_gpu_is_as_the_model_has_it(registry, virtual, name):
    found = factors(registry, virtual, PROFILES[name])
    assert found == pytest.approx(dict.fromkeys(found, 1.0), rel=EXACT)
    assert {"memory", "kernel", "host", "vector", "link"} <= set(found)
    assert ("half" in found) == (name != "Tesla P100-SXM2-16GB"), "Pascal multiplies float16 at float32's rate"
    assert ("tf32" in found) == ("8-bit" in found) == ("H100" in name)


@pytest.mark.parametrize(
    ("card", "wanted"),
    [
        (T4, {"memory": 0.8, "vector": 0.9, "half": 0.7, "kernel": 1.6, "host": 1.5, "link": 0.5}),
        (H100, {"memory": 1.1, "vector": 0.95, "tf32": 0.8, "half": 0.9, "8-bit": 1.2, "convolution half": 0.6,
                "convolution tf32": 1.3, "host": 0.6}),
    ],
)  # fmt: skip
def test_the_factors_of_another_card_are_found(registry, virtual, card, wanted):
    found = factors(registry, virtual, with_factors(card, wanted))
    assert found == pytest.approx({name: wanted.get(name, 1.0) for name in found}, rel=EXACT)
    assert set(wanted) <= set(found)


def on_cpu(copier, stop):
    """The run with the CPU in the place of a card, on its own clock, with kernels that take it no time."""
    spec = CalibrateSpec(device="cpu", seconds=0.1)
    return CalibrateRun(spec, 1, A10, CpuTimer(), copier, stop.is_set, lambda: 0.0, sizes=SMALL)


def test_every_measurement_is_made_for_real_and_verified():
    stop = threading.Event()
    found = ran(on_cpu(Copier(DeviceRegistry([TorchBackend()]), stop, set()), stop))
    assert (found.simulated, found.verified, found.card) == (False, True, A10.name)
    assert [each.factor for each in found.rows[:3]] == ["memory", "kernel", "host"]
    assert {each.factor for each in found.rows} >= {"vector", "tf32", "half", "convolution half", "link"}
    for each in found.rows:
        if each.measured is not None:
            assert each.modelled is not None
            assert 0 < each.measured.p20 <= each.measured.median <= each.measured.p80
            assert (each.verified, each.iterations > 0, each.seconds > 0) == (True, True, True)
        assert (each.value is None) == (each.reason is not None)


@pytest.mark.parametrize(("allowed", "units"), [(True, ["tf32", "half"]), (False, ["vector", "half"])])
def test_convolutions_run_as_the_setting_of_an_older_torch_has_it(monkeypatch, allowed, units):
    monkeypatch.setattr(torch.backends, "cudnn", SimpleNamespace(allow_tf32=allowed))  # before torch 2.9
    probes = convolutions("cpu", A10, Roofline(A10), SMALL, simulated=False)
    assert [probe.factor for probe in probes] == [f"convolution {unit}" for unit in units]


def test_bytes_that_arrive_wrong_make_no_calibration():
    def broken(destination, source):
        send(destination, source)
        destination[7] ^= 1

    stop = threading.Event()
    found = ran(on_cpu(Copier(DeviceRegistry([TorchBackend()]), stop, set(), broken), stop))
    assert found.verified is False
    assert found.unusable == "Wrong values came back, so the calibration was not saved."


def test_a_stopped_run_keeps_what_is_finished_and_is_no_calibration():
    stop = threading.Event()
    run = on_cpu(Copier(DeviceRegistry([TorchBackend()]), stop, set()), stop)
    run.prepare()
    while (point := run.step()) is not None:
        if point.part is not None:
            stop.set()
    found = run.result(stopped=True)
    assert found is not None
    assert [each.factor for each in found.rows] == ["memory", "kernel", "host"]
    assert found.unusable == "The calibration did not finish, so it was not saved."
    again = on_cpu(Copier(DeviceRegistry([TorchBackend()]), stop, set()), stop)
    again.prepare()
    assert again.step() is None
    assert again.result(stopped=True) is None


def test_a_busy_card_is_told_by_the_noise():
    assert result(row(noise=0.05), row("host", noise=0.4)).unusable is None
    busy = result(row(noise=0.23)).unusable
    assert busy is not None
    assert busy.startswith("a kernel of memory varied by 23 %")
    assert busy.endswith("Calibrate again when it is idle.")
    assert result(row("host", noise=0.7)).unusable is not None


def test_of_two_measurements_of_one_factor_the_mean_counts_and_the_range_of_both():
    [half] = combined([row("half", 0.8), row("half", 1.25), CalibrationRow(factor="half", text="", reason="not here")])
    assert half.value == pytest.approx(1.0)
    assert (half.low, half.high) == pytest.approx((0.99 * 0.8, 1.01 * 1.25))


def test_what_takes_too_little_of_a_time_is_not_told_from_it():
    assert without(overlapped(3.0, 2.0), 3.0) == pytest.approx(2.0)
    assert without(3.0, 3.0) is None
    assert without(2.0, 3.0) is None
    assert host_factors([4e-6], 5e-6) == [], "the card is slower than the host: nothing is known of the host"


def test_factors_change_what_they_stand_for_and_nothing_else():
    slow = with_factors(T4, {"memory": 0.8, "kernel": 2.0, "host": 1.5, "link": 0.5, "of a newer version": 3.0})
    work = Work(Kind.ELEMENTWISE, 0, 1 << 30)
    kernel = cost_parameters()["kernel"]
    memory = Roofline(T4).seconds(work) - kernel
    assert Roofline(slow).seconds(work) == pytest.approx(memory / 0.8 + 2 * kernel)
    compute = Work(flop=10**12)
    assert Roofline(slow).bounds(compute)[0] == Roofline(T4).bounds(compute)[0]
    calls = [(HostCall.FORWARD, 10), (HostCall.MODULE, 1)]
    assert host_seconds(calls, slow) == pytest.approx(1.5 * host_seconds(calls))
    assert host_seconds(calls, T4) == host_seconds(calls)
    nbytes = 1 << 30
    assert transfer_seconds(slow, None, nbytes) == pytest.approx(2 * transfer_seconds(T4, None, nbytes), rel=1e-3)
    assert transfer_seconds(slow, slow, nbytes) == transfer_seconds(T4, T4, nbytes), "only the link to the host"


def test_a_calibrated_card_keeps_what_its_model_has():
    """ECC, boost and the like go by the card's name."""
    named = replace(with_factors(T4, {}), name="Tesla T4 calibrated on 27 Nov 2026")
    work = Work(Kind.ELEMENTWISE, 0, 1 << 30)
    assert Roofline(named).seconds(work) == Roofline(T4).seconds(work)


def info(**more):
    known = {"id": "cuda:0", "kind": "cuda", "name": "NVIDIA GeForce RTX 4090", "memory_total_bytes": 24 << 30}
    return DeviceInfo(**{**known, **more})  # type: ignore[arg-type]


def test_the_profile_of_a_device_is_found_by_its_name():
    assert card_of(info()).name == "GeForce RTX 4090"
    with pytest.raises(BadInput, match="cpu cannot be calibrated: the cost model is one of GPUs"):
        card_of(info(id="cpu", kind="cpu", name="a processor"))
    with pytest.raises(BadInput, match="there is no profile of NVIDIA Toaster"):
        card_of(info(name="NVIDIA Toaster"))
    with pytest.raises(BadInput, match="is a MIG instance"):
        card_of(info(uuid="MIG-1"))


def test_what_cannot_be_calibrated_is_refused_in_one_line(registry, virtual):
    virtual.add([replace(T4, memory_bytes=1 << 30, usable_bytes=1 << 30)])
    device = virtual.gpus[-1].id
    with pytest.raises(DoesNotFit, match=f"a calibration needs 1.00 GiB on {device}"):
        check_calibrate(CalibrateSpec(device=device), registry)
    with pytest.raises(BadInput, match="lasts 600 s at most"):
        check_calibrate(CalibrateSpec(device="cpu", seconds=1e4), registry)
    with pytest.raises(BadInput, match="there is no device 'cuda:9'"):
        check_calibrate(CalibrateSpec(device="cuda:9"), registry)
