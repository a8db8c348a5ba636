"""The readings of `devexplorer watch`: cards of every vendor, added and removed cards, and the start of its
recordings."""

from __future__ import annotations

import json
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes.nvml import FakeCard, FakeNvml

from devexplorer.core.cli.arguments import parse
from devexplorer.core.devices.drm import Drm, DrmCard
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.recording.format import DeviceList, RecordedEntry, open_recording
from devexplorer.core.records import DeviceDetails, DeviceSample, Topology
from devexplorer.core.telemetry.sampler import Sampler
from devexplorer.core.watch import devices as watch_devices
from devexplorer.core.watch.command import watch
from devexplorer.core.watch.table import WatchReading, WatchTable

UUID = "GPU-aaaaaaaa-0000-0000-0000-00000000000{}"
GIB = 1 << 30

pytestmark = pytest.mark.usefixtures("no_virtual_gpus_left", "cpu_build")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not make a card late."""
    monkeypatch.setattr(watch_devices, "FIRST_S", 30.0)
    monkeypatch.setattr(watch_devices, "NEXT_S", 30.0)


def records(path: Path) -> list[RecordedEntry]:
    """Everything in a recording: events, then readings."""
    recording = open_recording(path)
    assert recording is not None
    with recording:
        return [*recording.events, *(entry for frame in recording.frames for entry in recording.readings(frame))]


def recorded(path: Path) -> list[str]:
    """Devices of the samples in a recording."""
    return [entry.record.device for entry in records(path) if isinstance(entry.record, DeviceSample)]


def run(fake: FakeNvml, *argv: str) -> None:
    assert watch(parse(["watch", "--interval", "0.02", *argv]), Nvml(fake, hidden_processes=lambda: False)) == 0


def test_a_recording_begins_with_what_each_device_is_and_how_they_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "run.devrec"
    fake = FakeNvml(FakeCard(uuid=UUID.format(1)), FakeCard(uuid=UUID.format(2)))
    run(fake, "--count", "1", "--record", str(path), "--virtual", "2x Tesla T4")
    found = [entry.record for entry in records(path)]
    details = {record.device: record for record in found if isinstance(record, DeviceDetails)}
    assert set(details) == {"nvml:0", "nvml:1", "vgpu:0", "vgpu:1"}
    assert {device for device in details if details[device].simulated} == {"vgpu:0", "vgpu:1"}
    assert {record.source: len(record.links) for record in found if isinstance(record, Topology)} == {
        "nvml": 1,
        "virtual": 1,
    }


def test_a_card_that_is_plugged_in_is_among_the_devices_of_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.devrec"
    fake = FakeNvml(FakeCard(uuid=UUID.format(1)))
    monkeypatch.setattr(watch_devices, "Sampler", partial(Sampler, list_interval_s=0.0))
    read = watch_devices.WatchedDevices.read

    def plug_in_after_the_first(devices: Any) -> Any:
        found = read(devices)
        if len(fake.cards) == 1:
            fake.cards.append(FakeCard(uuid=UUID.format(2)))
        return found

    monkeypatch.setattr(watch_devices.WatchedDevices, "read", plug_in_after_the_first)
    run(fake, "--count", "20", "--record", str(path))
    lists = [entry.record for entry in records(path) if isinstance(entry.record, DeviceList)]
    assert "nvml:1" in {info.id for info in lists[-1].devices}
    assert "nvml:1" in recorded(path)


def shown(devices: watch_devices.WatchedDevices, **wanted: str) -> dict[str, WatchReading]:
    """Readings by device, read until `wanted` ones have such a problem (empty: none)."""
    until = time.monotonic() + 10  # what is read every two seconds stays until then
    while time.monotonic() < until:
        found = {reading.info.id: reading for reading in devices.read()[0]}
        if all(name in found and bool(problem) == bool(found[name].problem) for name, problem in wanted.items()):
            break
        time.sleep(0.005)
    return found


def test_a_driver_that_was_unloaded_is_said_at_every_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_devices, "Sampler", partial(Sampler, list_interval_s=0.0))
    fake = FakeNvml(FakeCard(uuid=UUID.format(1)), FakeCard(uuid=UUID.format(2)))
    with watch_devices.WatchedDevices(None, 0.02, Nvml(fake, hidden_processes=lambda: False)) as devices:
        assert {name: reading.problem for name, reading in shown(devices).items()} == {
            "cpu": "",
            "nvml:0": "",
            "nvml:1": "",
        }
        fake.fail("nvmlInit", fake.NVML_ERROR_DRIVER_NOT_LOADED)
        for card in (0, 1):
            fake.fail("*", fake.NVML_ERROR_DRIVER_NOT_LOADED, card)
        found = shown(devices, **{"nvml:0": "unloaded", "nvml:1": "unloaded"})
        assert "loaded" in found["nvml:0"].problem
        assert found["nvml:1"].problem == found["nvml:0"].problem
        assert found["cpu"].problem == ""


def test_mig_instances_come_and_go_while_it_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_devices, "Sampler", partial(Sampler, list_interval_s=0.0))
    card = FakeCard(uuid=UUID.format(1))
    fake = FakeNvml(card)
    with watch_devices.WatchedDevices(None, 0.02, Nvml(fake, hidden_processes=lambda: False)) as devices:
        assert list(shown(devices)) == ["cpu", "nvml:0"]
        card.mig, card.instances = 1, [FakeCard(uuid="MIG-cccccccc-0000-0000-0000-000000000003")]
        found = shown(devices, **{"nvml:0/0": ""})
        assert found["nvml:0/0"].info.parent == "nvml:0"
        card.mig, card.instances = 0, []
        for _ in range(200):
            if list(shown(devices)) == ["cpu", "nvml:0"]:
                break
        assert list(shown(devices)) == ["cpu", "nvml:0"]


class Kernel(Drm):
    """An AMD card without files, whose reader `gate` can block."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()

    def cards(self) -> tuple[DrmCard, ...]:
        return (DrmCard(0, "AMD", "AMD Radeon", "0000:03:00.0", "amdgpu", 16 * GIB, shared=False),)

    def read(self, card: DrmCard, device: str, time_unix_s: float) -> DeviceSample:
        self.gate.wait(10)
        return DeviceSample(device=device, time_unix_s=time_unix_s, temperature_c=50.0, memory_total_bytes=16 * GIB)

    def details(self, card: DrmCard, device: str, time_unix_s: float) -> DeviceDetails:
        return DeviceDetails(device=device, time_unix_s=time_unix_s)


def test_cards_of_other_makers_are_read_as_well_and_recorded(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.devrec"
    nvml = Nvml(FakeNvml(), hidden_processes=lambda: False)
    assert (
        watch(parse(["watch", "--interval", "0.02", "--count", "2", "--json", "--record", str(path)]), nvml, Kernel())
        == 0
    )
    documents = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(content["device"], content["temperature_c"]) for content in documents] == [
        ("cpu", None),
        ("drm:0", 50),
    ] * 2
    assert "drm:0" in recorded(path)
    assert "drm:0" in [entry.record.device for entry in records(path) if isinstance(entry.record, DeviceDetails)]


def test_a_card_of_another_maker_that_hangs_delays_no_other(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel()
    kernel.gate.clear()
    monkeypatch.setattr(watch_devices, "PATIENCE_S", 0.05)
    monkeypatch.setattr(watch_devices, "CLOSE_S", 0.05)
    before = set(threading.enumerate())
    nvml = Nvml(FakeNvml(), hidden_processes=lambda: False)
    assert watch(parse(["watch", "--interval", "0.02", "--count", "2", "--json"]), nvml, kernel) == 0
    documents = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(content["device"], content["temperature_c"]) for content in documents] == [
        ("cpu", None),
        ("drm:0", None),
    ] * 2
    kernel.gate.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive()


def without_limits(fake: FakeNvml, **limits: float) -> Nvml:
    return Nvml(fake, hidden_processes=lambda: False, driver_cards=frozenset, **limits)


def test_why_there_is_no_gpu_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    fake = FakeNvml()
    fake.fail("nvmlInit", fake.NVML_ERROR_LIBRARY_NOT_FOUND)
    run(fake, "--count", "1")
    assert "No GPU: no NVIDIA driver" in capfd.readouterr().out
    fake = FakeNvml()
    fake.fail("nvmlInit", fake.NVML_ERROR_DRIVER_NOT_LOADED)
    run(fake, "--count", "1", "--json")
    (cpu,) = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    (problem,) = [problem for problem in cpu["problems"] if problem["field"] == "nvml"]
    assert "not loaded" in problem["reason"]


def test_empty_fields_have_their_reasons(capfd: pytest.CaptureFixture[str]) -> None:
    fake = FakeNvml(FakeCard(uuid=UUID.format(1)), FakeCard(uuid=UUID.format(2), power_mw=2**32 - 1))
    run(fake, "--count", "1", "--json")
    lines = {line["device"]: line for line in map(json.loads, capfd.readouterr().out.splitlines())}
    assert lines["nvml:1"]["power_w"] is None
    assert lines["nvml:1"]["unavailable"]["power_w"] == "the driver answers 4294967.295 W, which cannot be right"
    for line in lines.values():
        assert {name for name, value in line.items() if value is None} - {"problem", "age_s"} == set(
            line["unavailable"]
        )
    run(fake, "--count", "1")
    assert (
        "— nvml:1 W/cap: the driver answers 4294967.295 W, which cannot be right" in capfd.readouterr().out.splitlines()
    )


def test_a_call_that_hangs_costs_its_field_and_a_second_at_most(capfd: pytest.CaptureFixture[str]) -> None:
    fake = FakeNvml(FakeCard(uuid=UUID.format(1)), FakeCard(uuid=UUID.format(2)))
    fake.block("nvmlDeviceGetPowerUsage", card=1)
    assert watch(parse(["watch", "--count", "1", "--json"]), without_limits(fake, limit_s=0.05)) == 0
    lines = {line["device"]: line for line in map(json.loads, capfd.readouterr().out.splitlines())}
    fake.release()
    assert lines["nvml:0"]["power_w"] == 35.5
    assert (lines["nvml:1"]["power_w"], lines["nvml:1"]["temperature_c"]) == (None, 61.0)
    assert lines["nvml:1"]["unavailable"]["power_w"] == "nvmlDeviceGetPowerUsage did not answer within 0.05 s"


def test_a_slow_card_delays_no_other_and_shows_how_old_its_reading_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_devices, "NEXT_S", 0.5)  # the other card answers within that on a busy machine too
    monkeypatch.setattr(watch_devices, "CLOSE_S", 5.0)
    fake = FakeNvml(FakeCard(uuid=UUID.format(1)), FakeCard(uuid=UUID.format(2)))
    with watch_devices.WatchedDevices(None, 0.02, without_limits(fake)) as devices:
        first = shown(devices)["nvml:1"]
        assert first.age_s is None
        fake.block("nvmlDeviceGetPowerUsage", card=1)
        for _ in range(3):
            found = shown(devices)
            assert found["nvml:1"].sample.time_unix_s >= first.sample.time_unix_s
            assert found["nvml:0"].sample.time_unix_s > first.sample.time_unix_s
            assert found["nvml:0"].age_s is None
        late = found["nvml:1"]
        assert late.age_s is not None
        assert late.sample.power_w == 35.5
        row = next(
            line.plain for line in WatchTable().lines(list(found.values()), 200) if line.plain.startswith("nvml:1")
        )
        assert "s old" in row
        assert "36/70" in row
        fake.release()
        for _ in range(200):
            if shown(devices)["nvml:1"].age_s is None:
                break
        else:
            pytest.fail("it is current again when the call has returned")
