"""Behaviour 2: a device shows everything in the nvidia-smi table, with a reason for each unknown value."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.nvml import MIB, FakeCard, FakeNvml
from places import Place

from devexplorer.core.cli.devices import devices
from devexplorer.core.cli.run import main
from devexplorer.core.devices.drm import Drm
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.devices.nvml_card import ProcessFacts, ProcessLoad

Json = dict[str, Any]
TABLE = {
    "driver": "driver_version", "CUDA version": "cuda_version", "name": "name", "bus id": "bus_id",
    "fan": "fan_percent",
    "temperature": "temperature_c", "performance state": "performance_state", "power": "power_w", "cap": "power_cap_w",
    "memory used": "memory_used_bytes", "memory total": "memory_total_bytes", "utilization": "utilization_percent",
    "ECC": "ecc",
    "ECC errors": "ecc_uncorrected", "compute mode": "compute_mode", "MIG mode": "mig", "processes": "processes",
    "persistence": "persistence", "display": "display_active",
}  # fmt: skip
"""Cell of nvidia-smi's table -> key."""


def cell(device: Json, key: str) -> Any:
    """The value in the document; null has a reason."""
    holders = [part for part in (device["sample"], device["details"], device) if key in part]
    assert holders, f"{key} is nowhere"
    found = next((part[key] for part in holders if part[key] is not None), None)
    if found is None:
        assert device["details"]["missing"][key], f"{key} of {device['id']} is null without a reason"
    return found


def table(device: Json) -> Json:
    return {title: cell(device, key) for title, key in TABLE.items()}


def strictly(text: str) -> Json:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in a document")

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


# --- on this machine


def looked_at(place: Place, capfd: pytest.CaptureFixture[str]) -> tuple[Json, dict[str, Json]]:
    """What the command line prints, and its devices by id."""
    # The place has its own virtual GPUs; the command creates them, as a separate process would.
    if place.kind == "vgpu":
        place.registry.backend(place.first).reset()  # type: ignore[attr-defined]
    assert main(["devices", "--json", *(["--virtual", "2x Tesla T4"] if place.kind == "vgpu" else [])]) == 0
    content = strictly(capfd.readouterr().out)
    return content, {device["id"]: device for device in content["devices"]}


def test_every_device_shows_the_whole_table_or_says_what_is_missing(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    content, found = looked_at(place, capfd)
    for device in found.values():
        for key in ("sample", "details"):
            assert device[key]["device"] == device["id"]
            assert device[key]["simulated"] == device["simulated"]
        cells = table(device)
        assert cells["name"]
        assert cells["memory total"] > 0
    cpu = table(found["cpu"])
    assert 0 < cpu["memory used"] < cpu["memory total"]
    assert 0 <= cpu["utilization"] <= 100
    if place.kind == "vgpu":
        for name in (place.first, place.second):
            assert name is not None
            cells = table(found[name])
            modelled = {title for title, value in cells.items() if value is not None}
            assert modelled == {"name", "memory used", "memory total", "utilization", "temperature", "power", "cap"}
            assert "not modelled" in found[name]["details"]["missing"]["memory_temperature_c"]
            assert found[name]["simulated"] is True
        (link,) = content["topology"]["links"]
        assert (link["a"], link["b"], link["simulated"]) == (place.first, place.second, True)
    if place.kind == "cuda":
        cells = table(found[place.first])
        assert all(cells[title] for title in ("driver", "CUDA version", "bus id", "memory used"))


def test_on_the_cpu_alone_it_is_explained_and_virtual_gpus_are_offered(capfd: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert main(["devices", "--details"]) == 0
    text = capfd.readouterr().out
    assert "CPU build" in text or "driver" in text, "why there is no GPU"
    assert 'Try it with virtual ones: devexplorer --virtual "2x Tesla T4"' in text


# --- on a fake machine


T4 = FakeCard(
    uuid="GPU-aaaaaaaa-0000-0000-0000-000000000001",
    fan=35,
    fans=[35],
    used=5000 * MIB,
    compute=[(4321, 3000 * MIB)],
    graphics=[(99, MIB)],
)
A100 = FakeCard(
    uuid="GPU-bbbbbbbb-0000-0000-0000-000000000002",
    name="NVIDIA A100-SXM4-40GB",
    bus_id="00000000:3B:00.0",
    compute_mode=3,
    state=2,
    mig=1,
    instances=[
        FakeCard(
            uuid="MIG-cccccccc-0000-0000-0000-000000000003", name="NVIDIA A100-SXM4-40GB MIG 1g.5gb", total=4864 * MIB
        )
    ],
)


@pytest.fixture
def look(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(played: FakeNvml, **arguments: bool) -> str:
        given = {"virtual": None, "json": False, "details": False} | arguments
        people = {
            4321: ProcessFacts("python", "ann", "python train.py"),
            99: ProcessFacts("Xorg", "root", "/usr/bin/Xorg"),
        }
        nvml = Nvml(
            played, process_facts=people.__getitem__, process_load=lambda _: ProcessLoad(7.0, 5 << 20, 93_784.0),
            hidden_processes=lambda: False, driver_cards=frozenset,
        )  # fmt: skip
        assert devices(argparse.Namespace(**given), nvml, Drm(tmp_path)) == 0
        assert played.initialised == 0, "NVML was given back"
        out, err = capfd.readouterr()
        assert err == ""
        return out

    return run


def test_a_card_shows_every_cell_of_the_table(look: Callable[..., str]) -> None:
    content = strictly(look(FakeNvml(T4, A100), json=True))
    found = {device["id"]: device for device in content["devices"]}
    assert list(found) == ["cpu", "nvml:0", "nvml:1", "nvml:1/0"]
    cells = table(found["nvml:0"])
    processes = cells.pop("processes")
    assert cells == {
        "driver": "550.54.15", "CUDA version": "12.4", "name": "Tesla T4", "bus id": "00000000:00:04.0", "fan": 35.0,
        "temperature": 61.0, "performance state": "P0", "power": 35.5, "cap": 70.0, "memory used": 5000 * MIB,
        "memory total": 15360 * MIB, "utilization": 43.0, "ECC": True, "ECC errors": cells["ECC errors"],
        "compute mode": "Default",
        "MIG mode": False, "persistence": cells["persistence"], "display": cells["display"],
    }  # fmt: skip
    assert isinstance(cells["ECC errors"], int)
    assert isinstance(cells["persistence"], bool)
    by_pid = {process["pid"]: process for process in processes}
    assert by_pid[4321]["memory_bytes"] == 3000 * MIB
    assert (by_pid[4321]["name"], by_pid[4321]["user"], by_pid[4321]["kind"]) == ("python", "ann", "compute")
    assert by_pid[99]["kind"] == "graphics"
    assert (by_pid[99]["host_memory_bytes"], by_pid[99]["running_s"], by_pid[99]["cpu_percent"]) == (
        5 << 20,
        93_784,
        None,
    )
    assert (content["host"], content["time_unix_s"]) == (platform.node(), pytest.approx(time.time(), abs=60))
    whole, part = table(found["nvml:1"]), table(found["nvml:1/0"])
    assert (whole["compute mode"], whole["MIG mode"], whole["performance state"]) == ("Exclusive Process", True, "P2")
    assert (found["nvml:1/0"]["parent"], part["memory total"]) == ("nvml:1", 4864 * MIB)
    assert not found["nvml:1/0"]["usable"]
    assert found["nvml:1/0"]["reason"]
    (link,) = content["topology"]["links"]
    assert {link["a"], link["b"]} == {"nvml:0", "nvml:1"}
    assert {near["device"] for near in content["topology"]["affinities"]} == {"nvml:0", "nvml:1"}


def test_the_processes_of_a_card_are_among_its_details(look: Callable[..., str]) -> None:
    lines = look(FakeNvml(T4, A100), details=True).splitlines()
    first, second = (line for line in lines if line.startswith("  pid "))
    assert first.startswith("  pid 4321; user ann; GPU ")
    assert "memory 2.93 GiB at " in first
    assert first.endswith("CPU — %; host 5.00 MiB; running 1 day, 2:03:04; python train.py")
    assert second.startswith("  pid 99; user root")


def test_what_one_card_does_not_tell_has_a_reason_and_hides_nothing_else(look: Callable[..., str]) -> None:
    played = FakeNvml(T4, A100)
    for function in ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"):
        played.fail(function, FakeNvml.NVML_ERROR_NOT_SUPPORTED, card=0)
    played.fail("nvmlDeviceGetPowerUsage", FakeNvml.NVML_ERROR_NO_PERMISSION, card=0)
    found = {device["id"]: device for device in strictly(look(played, json=True))["devices"]}
    cells = table(found["nvml:0"])
    assert (cells["temperature"], cells["power"]) == (None, None)
    assert (
        "permi" in found["nvml:0"]["details"]["missing"]["power_w"]
        or "may not" in found["nvml:0"]["details"]["missing"]["power_w"]
    )
    assert cells["utilization"] == 43.0
    assert table(found["nvml:1"])["temperature"] == 61.0


def test_a_lost_card_is_listed_with_its_reason_and_no_figure(look: Callable[..., str]) -> None:
    played = FakeNvml(T4, A100)
    played.lose(0)
    found = {device["id"]: device for device in strictly(look(played, json=True))["devices"]}
    assert "lost" in found["nvml:0"]["reason"]
    table(found["nvml:0"])
    assert {
        found["nvml:0"]["sample"][key]
        for key in ("temperature_c", "power_w", "utilization_percent", "memory_used_bytes")
    } == {None}
    assert table(found["nvml:1"])["power"] == 35.5


def test_the_same_facts_are_below_the_list_as_text(look: Callable[..., str]) -> None:
    text = look(FakeNvml(T4, A100), details=True)
    listing, rest = text.split("\n\n", 1)
    assert "nvml:0" in listing
    assert "61 °C" not in listing
    for words in ("61 °C", "35.5 W", "P0", "Exclusive Process", "550.54.15", "How they are joined"):
        assert words in rest
    assert "61 °C" not in look(FakeNvml(T4, A100)), "only when asked for"
