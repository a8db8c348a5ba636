"""`devexplorer watch`: a table that fits its terminal, whole JSON lines, Prometheus, a recording; messages about cards
with problems."""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes.nvml import FakeCard, FakeNvml
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from rich.cells import cell_len
from rich.console import Console

from devexplorer.core.base import BadInput, running_text
from devexplorer.core.cli.arguments import parse
from devexplorer.core.cli.terminal.stopping import Stopping
from devexplorer.core.cli.watch import command as watch_module
from devexplorer.core.cli.watch import devices
from devexplorer.core.cli.watch.command import document, watch
from devexplorer.core.cli.watch.prometheus import LastReadings, PrometheusServer, this_machine
from devexplorer.core.cli.watch.table import Reading, WatchTable
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.recording.format import Entry
from devexplorer.core.recording.reader import open_recording
from devexplorer.core.records import DeviceInfo, DeviceSample, ProcessUse
from devexplorer.core.telemetry.sampler import Sampler
from devexplorer.core.virtual.backend import install, unavailable

CLI = [sys.executable, "-m", "devexplorer.core.cli"]
GIB = 1 << 30
UUID = "GPU-aaaaaaaa-0000-0000-0000-00000000000{}"
NOW = 1_700_000_000.0
CONTRACT = (
    "schema", "time_unix_s", "device", "memory_used_bytes", "memory_total_bytes", "utilization_percent",
    "temperature_c", "power_w",
    "sm_clock_mhz", "processes",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_virtual_gpus_left() -> Iterator[None]:
    if unavailable() is not None:
        pytest.skip(str(unavailable()))
    install().reset()
    yield
    install().reset()


def info(name: str, kind: str = "cuda", model: str = "NVIDIA H100 80GB HBM3", **more: Any) -> DeviceInfo:
    return DeviceInfo(id=name, kind=kind, name=model, **more)


def full(index: int, name: str = "", **changes: Any) -> Reading:
    """A card with all values."""
    device = name or f"cuda:{index}"
    fields: dict[str, Any] = {
        "memory_used_bytes": 40 * GIB + index, "memory_total_bytes": 80 * GIB, "memory_free_bytes": 39 * GIB,
        "memory_reserved_bytes": GIB - index, "utilization_percent": 100.0, "memory_utilization_percent": 55.0,
        "encoder_percent": 1.0,
        "decoder_percent": 2.0, "temperature_c": 61.0, "memory_temperature_c": 70.0, "power_w": 699.5,
        "power_instant_w": 701.0,
        "power_cap_w": 700.0, "energy_j": 3.6e9, "sm_clock_mhz": 1980, "memory_clock_mhz": 2619,
        "graphics_clock_mhz": 1980,
        "video_clock_mhz": 1545, "fan_percent": 30.0, "performance_state": "P0", "throttle_reasons": ("power cap",),
        "pcie_generation": 5,
        "pcie_width": 16, "pcie_tx_bytes_s": 12.3e9, "pcie_rx_bytes_s": 1.2e9, "pcie_replays": 3,
        "nvlink_tx_bytes_s": 100e9,
        "nvlink_rx_bytes_s": 200e9, "ecc_corrected": 4, "ecc_uncorrected": 0,
        "processes": (ProcessUse(pid=4242, name="python", memory_bytes=30 * GIB, user="ada",
                                 utilization_percent=99.0),),
    }  # fmt: skip
    simulated = changes.pop("simulated", False)
    sample = DeviceSample(device=device, time_unix_s=NOW + index, simulated=simulated, **(fields | changes))
    kind = "virtual" if simulated else "cuda"
    return Reading(
        info(device, kind, uuid=UUID.format(index), nvml_index=None if simulated else index + 4, simulated=simulated),
        sample,
    )


def nothing(name: str, kind: str = "cuda", problem: str = "", model: str = "NVIDIA H100 80GB HBM3") -> Reading:
    return Reading(info(name, kind, model), DeviceSample(device=name, time_unix_s=NOW), problem)


def lines(readings: list[Reading], width: int, height: int | None = None, **how: Any) -> list[str]:
    """The table as text; each line is checked against the width."""
    made = [line.plain for line in WatchTable(**how).lines(readings, width, height)]
    for line in made:
        assert cell_len(line) <= width, line
    assert height is None or len(made) <= height
    return made


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not make a card late."""
    monkeypatch.setattr(devices, "FIRST_S", 30.0)
    monkeypatch.setattr(devices, "NEXT_S", 30.0)


# --- the table


@pytest.mark.parametrize("count", [1, 2, 8, 16])
@pytest.mark.parametrize("model", ["T4", "NVIDIA H100 80GB HBM3", "卡" * 60, "A" * 200])
def test_the_table_fits_80_columns_with_what_matters(count: int, model: str) -> None:
    readings = [Reading(info(reading.info.id, model=model), reading.sample) for reading in map(full, range(count))]
    readings += [
        full(count, f"vgpu:{count}", simulated=True),
        nothing("nvml:15", "nvml", "the card is lost; a reboot brings it back"),
    ]
    header, *rows = lines(readings, 80)
    assert header.split() == ["device", "name", "memory", "util%", "°C", "W/cap", "MHz"]
    assert [row.split()[0] for row in rows] == [reading.info.id for reading in readings]
    for row in rows[:count]:
        assert "40.0/80.0 GiB" in row
        assert row.split()[-6:-2] == ["100", "61", "700/700", "1980"] or "power" in row
    assert "simulated" in rows[count]
    assert "✕ the card is lost" in rows[-1]


@pytest.mark.parametrize("width", [1, 20, 40, 60, 79, 81, 100, 133, 160, 200, 400])
def test_no_width_folds_a_line(width: int) -> None:
    readings = [full(0), full(1, "vgpu:1", simulated=True), nothing("cuda:2", problem="x" * 300), nothing("mps", "mps")]
    lines(readings, width, 10)


def test_more_columns_come_when_there_is_room_and_the_names_are_whole_then() -> None:
    readings = [nothing("cpu", "cpu"), *map(full, range(2))]
    counts = [
        len(lines(readings, width)[0].replace(" rx/tx GB/s", "").replace("mem MHz", "mem").split())
        for width in (80, 100, 130, 240)
    ]
    assert counts == sorted(counts)
    assert len(set(counts)) == 4
    header, *rows = lines(readings, 240)
    for title in ("mem%", "fan%", "PCIe rx/tx GB/s", "NVLink rx/tx GB/s", "enc/dec%", "kWh"):
        assert title in header
    assert "NVIDIA H100 80GB HBM3" in rows[1]
    assert "1.20/12.30" in rows[1]
    assert rows[1].endswith("power cap")


def test_unknown_values_are_a_dash_and_no_column_of_dashes_for_what_a_machine_does_not_have() -> None:
    header, row = lines([nothing("cpu", "cpu")], 80)
    assert header.split() == ["device", "name", "memory"]
    assert row.split()[-1] == "—"
    header, row = lines([nothing("cuda:0")], 80)
    assert header.split() == ["device", "name", "memory", "util%", "°C", "W/cap", "MHz"]
    assert row.split()[-5:] == ["—"] * 5
    assert " 0" not in row


def test_a_column_that_was_there_stays() -> None:
    table = WatchTable()
    wide = table.lines([full(0)], 200)[0].plain
    assert table.lines([nothing("cuda:0", "cpu")], 200)[0].plain.split() == wide.split()


def test_one_reason_for_lower_clocks_is_shown_once() -> None:
    hot = full(
        0, throttle_reasons=("too hot (the driver lowers the clocks)", "too hot (the hardware lowers the clocks)")
    )
    assert lines([hot], 300)[1].count("too hot") == 1


def test_processes_are_below_as_far_as_they_fit() -> None:
    many = tuple(ProcessUse(pid=pid, name=f"train-{pid}", memory_bytes=pid * GIB, user="ada") for pid in range(1, 31))
    readings = [full(0, processes=many), nothing("cuda:1")]
    made = lines(readings, 80, 12)
    assert len(made) == 12
    assert "train-30" in made[5], "the largest first"
    assert made[-1].startswith("… 25 more lines")
    assert not any("train" in line for line in lines(readings, 80, 5))
    assert any("cuda:1: processes are not visible from here" in line for line in lines(readings, 80, 60))
    assert not any("train" in line for line in lines(readings, 80)), "not on a pipe"


@pytest.mark.parametrize(
    ("width", "further", "running_s"), [(72, 0, 42.0), (80, 1, 42.0), (100, 3, 42.0), (110, 3, 2e5), (200, 3, 2e5)]
)
def test_wider_terminals_show_what_processes_use_of_the_host(width: int, further: int, running_s: float) -> None:
    use = ProcessUse(
        pid=7, memory_bytes=GIB, user="ada", utilization_percent=98.0, command="python train.py --epochs 3",
        cpu_percent=153.4, host_memory_bytes=3 * GIB, running_s=running_s,
    )  # fmt: skip
    header, row = lines([full(0, processes=(use,))], width, 20)[-2:]
    titles = ["device", "pid", "user", "memory", "util%", *["CPU%", "host mem", "running"][:further], "process"]
    assert header.split() == " ".join(titles).split()
    shown = ["153", "3.00 GiB", running_text(running_s)]
    assert [text in row for text in shown] == [number < further for number in range(3)]
    assert "python train.py" in row


def test_more_devices_than_lines_are_counted() -> None:
    made = lines(list(map(full, range(16))), 80, 10)
    assert len(made) == 10
    assert made[-1] == "… 8 more devices; a higher terminal shows them"


def test_names_from_outside_cannot_move_the_cursor() -> None:
    evil = ProcessUse(pid=7, name="\x1b[2Jgone\nnext", memory_bytes=1)
    bad = Reading(info("cuda:0", model="\x1b]0;title\x07T4"), full(0, processes=(evil,)).sample)
    text = "".join(lines([bad], 120, 20))
    assert "\x1b" not in text
    assert "\n" not in text
    assert "?[2Jgone?next" in text


def test_a_terminal_without_unicode_gets_plain_characters() -> None:
    made = lines([full(0), nothing("cuda:1", problem="lost"), nothing("cuda:2")], 80, 20, ascii_only=True)
    assert all(line.isascii() for line in made)
    assert "###" in made[1]
    assert "x lost" in made[2]


def test_on_a_terminal_the_table_renews_itself_in_its_place() -> None:
    out = Console(file=io.StringIO(), force_terminal=True, width=80, height=10, color_system=None, legacy_windows=False)
    with ExitStack() as ending:
        table = watch_module._Table(out, ending)
        for _ in range(3):
            table.show([full(index) for index in range(20)])
    written = out.file.getvalue()  # type: ignore[attr-defined]
    assert written.count("cuda:0 ") >= 3
    assert "\x1b[1A" in written, "the cursor goes back up"
    assert "… 13 more devices" in written, "a line stays free for the cursor"


# --- documents


def test_a_document_has_every_field_and_null_where_it_is_not_known() -> None:
    content = document(nothing("cuda:0", problem="lost"))
    assert set(DeviceSample.__struct_fields__) < set(content)
    assert content["problem"] == "lost"
    assert content["simulated"] is False
    assert all(
        value is None
        for name, value in content.items()
        if name not in ("device", "time_unix_s", "simulated", "problem", "unavailable")
    )
    (process,) = document(full(0, processes=(ProcessUse(pid=3),)))["processes"]  # type: ignore[misc]
    assert process == {
        "pid": 3, "name": None, "memory_bytes": None, "user": None, "command": None, "kind": None,
        "utilization_percent": None, "memory_utilization_percent": None, "cpu_percent": None, "host_memory_bytes": None,
        "running_s": None,
    }  # fmt: skip


def run(capfd: pytest.CaptureFixture[str], fake: FakeNvml, *argv: str) -> tuple[str, str]:
    """`watch` on fake cards; returns its output."""
    nvml = Nvml(fake, hidden_processes=lambda: False)
    assert watch(parse(["watch", "--interval", "0.02", *argv]), nvml) == 0
    captured = capfd.readouterr()
    return captured.out, captured.err


@pytest.mark.usefixtures("cpu_build")
def test_json_lines_hold_the_contract_for_every_device_and_tick(capfd: pytest.CaptureFixture[str]) -> None:
    fake = FakeNvml(FakeCard(uuid=UUID.format(1), compute=[(os.getpid(), 5 << 20)]), FakeCard(uuid=UUID.format(2)))
    out, err = run(capfd, fake, "--count", "2", "--json", "--virtual", "Tesla T4")
    assert err == ""
    documents = [json.loads(line) for line in out.splitlines()]
    assert [document["device"] for document in documents] == ["cpu", "nvml:0", "nvml:1", "vgpu:0"] * 2
    for content in documents:
        assert list(content)[: len(CONTRACT)] == list(CONTRACT)
        assert content["schema"] == 1
        assert content["simulated"] is (content["device"] == "vgpu:0")
    card = documents[1]
    assert (card["temperature_c"], card["power_w"], card["sm_clock_mhz"], card["utilization_percent"]) == (
        61,
        35.5,
        1590,
        43,
    )
    (use,) = card["processes"]
    assert (use["pid"], use["memory_bytes"]) == (os.getpid(), 5 << 20)
    assert use["name"]
    assert (documents[3]["temperature_c"], documents[3]["memory_clock_mhz"]) == (32.0, None)


def test_a_lost_card_keeps_its_line_and_says_what_happened(capfd: pytest.CaptureFixture[str]) -> None:
    fake = FakeNvml(FakeCard(uuid=UUID.format(1)), FakeCard(uuid=UUID.format(2)))
    fake.lose(0)
    out, _ = run(capfd, fake, "--count", "2", "--json")
    lost, good = [
        [json.loads(line) for line in out.splitlines() if json.loads(line)["device"] == name][-1]
        for name in ("nvml:0", "nvml:1")
    ]
    assert "lost" in lost["problem"]
    assert lost["memory_used_bytes"] is None
    assert (good["problem"], good["temperature_c"]) == (None, 61)
    out, _ = run(capfd, fake, "--count", "1")
    assert "✕" in next(line for line in out.splitlines() if line.startswith("nvml:0"))


@pytest.mark.usefixtures("cpu_build")
def test_a_card_that_hangs_delays_no_other(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml(FakeCard(uuid=UUID.format(1)), FakeCard(uuid=UUID.format(2)))
    read_round = Sampler.read_round
    rounds: list[int] = []
    gates: list[threading.Event] = []

    def impatient(sampler: Any, *_: object, **__: object) -> list[DeviceSample]:
        rounds.append(1)
        if len(rounds) == 2:
            gates.append(fake.block("nvmlDeviceGetPowerUsage", card=0))
        sampler._patience_s = 0.05  # of a call
        found = read_round(sampler, patience_s=0.2)
        if len(rounds) == 3:
            gates[0].set()
        return found

    monkeypatch.setattr(Sampler, "read_round", impatient)
    out, _ = run(capfd, fake, "--count", "3", "--json")
    documents = [json.loads(line) for line in out.splitlines()]
    assert [content["device"] for content in documents] == ["cpu", "nvml:0", "nvml:1"] * 3
    hung, good = documents[4], documents[5]
    assert "does not answer" in hung["problem"]
    assert hung["temperature_c"] == 61, "its last reading"
    assert hung["time_unix_s"] < good["time_unix_s"]
    assert hung["age_s"] > 0
    assert good["age_s"] is None
    assert good["temperature_c"] == 61


# --- Prometheus


def scrape(url: str) -> dict[str, list[Any]]:
    assert url.startswith("http://127.0.0.1:")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        text = answer.read().decode()
    return {family.name: family.samples for family in text_string_to_metric_families(text)}


@pytest.fixture
def exporter() -> Iterator[tuple[LastReadings, str]]:
    last = LastReadings()
    server = PrometheusServer(0, "127.0.0.1", last)
    yield last, server.url
    server.close()


@pytest.fixture
def served() -> Iterator[Callable[..., dict[str, list[Any]]]]:
    last = LastReadings()
    server = PrometheusServer(0, "127.0.0.1", last)

    def serve(*readings: Reading) -> dict[str, list[Any]]:
        last.machines = [this_machine([(reading.info, reading.sample) for reading in readings])]
        return scrape(server.url)

    yield serve
    server.close()


def test_metrics_have_the_names_units_and_labels_of_dcgm_exporter(served: Callable[..., dict[str, list[Any]]]) -> None:
    found = served(full(0))
    values = {name: samples[0].value for name, samples in found.items()}
    assert values["DCGM_FI_DEV_GPU_UTIL"] == 100
    assert values["DCGM_FI_DEV_FB_USED"] == 40 * 1024
    assert values["DCGM_FI_DEV_FB_FREE"] == 39 * 1024
    assert values["DCGM_FI_DEV_FB_TOTAL"] == 80 * 1024
    assert values["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == 3.6e12
    assert values["DCGM_FI_DEV_PSTATE"] == 0
    assert values["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"] == 0
    assert values["devexplorer_graphics_clock_hertz"] == 1.98e9
    assert values["devexplorer_pcie_sent_bytes_per_second"] == 12.3e9
    assert {
        "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK",
        "DCGM_FI_DEV_MEM_CLOCK",
        "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    } <= set(values)  # fmt: skip
    for samples in found.values():
        labels = samples[0].labels
        assert (labels["gpu"], labels["UUID"], labels["device"]) == ("4", UUID.format(0), "cuda:0")
        assert (labels["modelName"], labels["Hostname"], labels["simulated"]) == (
            "NVIDIA H100 80GB HBM3",
            socket.gethostname(),
            "false",
        )
    assert found["devexplorer_throttled"][0].labels["reason"] == "power cap"


COUNTERS = {
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER_total",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL_total",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL_total",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("127.0.0.1:{}", 200), ("localhost:{}", 200), ("LOCALHOST", 200), ("[::1]:{}", 200), ("", 200),
        ("attacker.example:{}", 421), ("127.0.0.1.attacker.example", 421), ("localhost.attacker.example:{}", 421),
    ],
)  # fmt: skip
def test_a_page_of_the_web_that_turned_its_name_to_this_machine_reads_nothing(
    exporter: tuple[LastReadings, str], name: str, status: int
) -> None:
    port = int(exporter[1].split(":")[2].split("/")[0])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.putrequest("GET", "/metrics", skip_host=True)
    connection.putheader("Host", name.format(port))
    connection.endheaders()
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == status


def test_where_others_may_ask_they_ask_by_any_name() -> None:
    server = PrometheusServer(0, "0.0.0.0", LastReadings())
    try:
        port = server.url.split(":")[2].split("/")[0]
        request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Host": "node7.cluster"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200
    finally:
        server.close()


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_what_only_grows_is_a_counter(exporter: tuple[LastReadings, str], accept: str) -> None:
    last, url = exporter
    last.machines = [this_machine([(full(0).info, full(0).sample)])]
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=10) as answer:
        text = answer.read().decode()
    read = openmetrics.text_string_to_metric_families if "openmetrics" in accept else text_string_to_metric_families
    assert {sample.name for family in read(text) if family.type == "counter" for sample in family.samples} == COUNTERS
    assert "untyped" not in text
    assert "unknown" not in text


def test_a_mig_instance_has_its_card_s_labels_and_does_not_repeat_its_energy(
    served: Callable[..., dict[str, list[Any]]],
) -> None:
    card, part = full(0), full(1, "cuda:1")
    about = {
        "uuid": "MIG-1",
        "parent": "cuda:0",
        "nvml_index": 4,
        "mig_profile": "1g.10gb",
        "gpu_instance_id": 7,
        "bus_id": "00000000:1B:00.0",
    }
    found = served(card, Reading(msgspec.structs.replace(part.info, **about), part.sample))
    (labels,) = [sample.labels for sample in found["DCGM_FI_DEV_FB_USED"] if sample.labels["device"] == "cuda:1"]
    assert (labels["gpu"], labels["UUID"], labels["pci_bus_id"]) == ("4", UUID.format(0), "00000000:1B:00.0")
    assert (labels["GPU_I_ID"], labels["GPU_I_PROFILE"]) == ("7", "1g.10gb")
    once = {name.removesuffix("_total") for name in COUNTERS} | {"DCGM_FI_DEV_POWER_USAGE"}
    for name in once:
        assert [sample.labels["device"] for sample in found[name]] == ["cuda:0"], name
        assert "GPU_I_ID" not in found[name][0].labels


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/metrics", 200), ("/metrics/", 404), ("/favicon.ico", 404), ("/../etc/passwd", 404)],
)
def test_there_are_the_readings_and_a_page_that_leads_to_them(
    exporter: tuple[LastReadings, str], path: str, status: int
) -> None:
    _, url = exporter
    host, port = url.split("/")[2].split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    said = answer.read().decode()
    connection.close()
    assert answer.status == status
    assert "/metrics" in said or path == "/metrics"


def test_what_is_not_known_is_absent_and_what_is_simulated_is_marked(
    served: Callable[..., dict[str, list[Any]]],
) -> None:
    assert served() == {}
    found = served(nothing("cuda:0"), full(1, "vgpu:0", simulated=True, temperature_c=None, memory_free_bytes=None))
    assert "DCGM_FI_DEV_GPU_TEMP" not in found
    assert [(sample.labels["gpu"], sample.labels["simulated"]) for sample in found["DCGM_FI_DEV_GPU_UTIL"]] == [
        ("vgpu:0", "true")
    ]
    assert "DCGM_FI_DEV_FB_FREE" not in found, "some of it is reserved, nobody says how much is free"
    assert len(found["devexplorer_sample_timestamp_seconds"]) == 2


def test_the_cpu_is_no_gpu_to_dashboards(served: Callable[..., dict[str, list[Any]]]) -> None:
    cpu = DeviceSample(
        device="cpu", time_unix_s=NOW, memory_used_bytes=3, memory_total_bytes=4, utilization_percent=25.0
    )
    found = served(Reading(info("cpu", "cpu"), cpu))
    assert not [name for name in found if name.startswith("DCGM")]
    assert found["devexplorer_cpu_utilization_ratio"][0].value == 0.25
    assert found["devexplorer_system_memory_used_bytes"][0].value == 3


def test_a_scrape_serves_the_last_reading_and_asks_no_driver(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeNvml(FakeCard(uuid=UUID.format(1)))
    found: list[float] = []
    show = watch_module._json

    def scrape_between(readings: Any) -> None:
        show(readings)
        url = capfd.readouterr().err.split()[-1] if not found else urls[0]
        urls.append(url)
        (sample,) = scrape(url)["devexplorer_sample_timestamp_seconds"][1:]
        found.append(sample.value)

    urls: list[str] = []
    monkeypatch.setattr(watch_module, "_json", scrape_between)
    run(capfd, fake, "--count", "3", "--json", "--prometheus", "0")
    serving = [name for name in fake.callers if "prometheus" in name or "process_request" in name]
    assert fake.callers, "the sampler's own threads do ask"
    assert not serving, "a thread that answers scrapes asked the driver"
    assert len(set(found)) == 3, "the tick goes on between scrapes"


def test_a_client_that_says_nothing_delays_neither_others_nor_the_end() -> None:
    last = LastReadings()
    server = PrometheusServer(0, "127.0.0.1", last)
    port = int(server.url.split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as silent:
        silent.sendall(b"GET /met")
        assert scrape(server.url) == {}
        server.close()
    assert not [
        thread for thread in threading.enumerate() if "prometheus" in thread.name or "process_request" in thread.name
    ]


def test_a_port_that_is_taken_or_an_address_that_is_not_ours_is_one_line() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(
            BadInput, match=r"nothing can listen at 127\.0\.0\.1:\d+ \(.*in use.*\); choose another port"
        ):
            PrometheusServer(other.getsockname()[1], "127.0.0.1", LastReadings())
    with pytest.raises(BadInput, match=r"'host\.invalid' is no address"):
        PrometheusServer(0, "host.invalid", LastReadings())


# --- arguments, recording, the end


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--prometheus often", "--prometheus 'often' is not a port"),
        ("--prometheus 65536", "is not a port; write a number from 1 to 65535"),
        ("--prometheus ²", "is not a port"),
        ("--address 0.0.0.0", "give a port with --prometheus"),
        ("--record /", "'/' is not a file"),
        ("--record /no/such/folder/r", "there is no folder '/no/such/folder'"),
        ("--record / --prometheus x --interval 0 --count 0", "--interval"),
    ],
)
def test_bad_arguments_are_found_before_anything_starts(argv: str, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        watch(parse(["watch", *argv.split()]), Nvml(FakeNvml()))
    assert expected in str(caught.value)
    if "--interval" in argv:
        assert len(caught.value.findings) == 4


def recorded(path: Path) -> list[str]:
    """Devices of the samples in a recording that was ended properly."""
    return [entry.record.device for entry in records(path) if isinstance(entry.record, DeviceSample)]


def records(path: Path) -> list[Entry]:
    """Everything in a recording that was ended properly: events, then readings."""
    recording = open_recording(path)
    assert recording is not None
    with recording:
        assert recording.ended, "the recording has no end"
        return [*recording.events, *(entry for frame in recording.frames for entry in recording.readings(frame))]


@pytest.mark.usefixtures("cpu_build")
def test_a_recording_holds_what_was_shown_and_the_table_continues(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "run.devrec"
    fake = FakeNvml(FakeCard(uuid=UUID.format(1)))
    out, err = run(capfd, fake, "--count", "3", "--record", str(path), "--virtual", "Tesla T4")
    assert len([line for line in out.splitlines() if line.startswith("nvml:0")]) == 3
    assert "--replay" in err
    assert recorded(path) == ["cpu", "nvml:0", "vgpu:0"] * 3


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "thesis.tex"
    path.write_text("months of work")
    with pytest.raises(BadInput, match="exists already"):
        watch(parse(["watch", "--count", "1", "--record", str(path)]), Nvml(FakeNvml()))
    assert path.read_text() == "months of work"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_the_request_to_end_leave_a_complete_recording_and_no_traceback(
    number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "run.devrec"
    argv = [*CLI, "watch", "--json", "--interval", "0.05", "--record", str(path), "--prometheus", "0"]
    # No buffer: what it had read beyond three lines would be missing from the rest.
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        for _ in range(3):
            assert json.loads(process.stdout.readline())["schema"] == 1
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    for line in out.decode().splitlines():
        json.loads(line)
    said = err.decode().splitlines()
    assert len(said) == 2
    assert said[0].startswith("devexplorer: serving http://127.0.0.1:")
    assert said[1].startswith("devexplorer: recorded ")
    assert len(recorded(path)) >= 3


def test_a_full_disk_is_one_line_and_watching_continues(tmp_path: Path) -> None:
    full_disk = Path("/dev/full")
    if not full_disk.exists():
        pytest.skip("this system has no /dev/full")
    code = (
        "import sys, devexplorer.core.recording.recorder as r, os\n"
        "r._open = lambda path, overwrite: os.open('/dev/full', os.O_WRONLY)\n"
        "from devexplorer.core.cli.run import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    argv = ["watch", "--json", "--interval", "0.3", "--count", "6", "--record", str(tmp_path / "run.devrec")]
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert len([line for line in done.stdout.splitlines() if b'"cpu"' in line]) == 6
    (said,) = done.stderr.decode().splitlines()
    assert "no space left" in said.lower() or "full" in said.lower()


def test_waiting_ends_at_once_on_request_and_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Stopping() as stopping:
        assert not stopping.wait(0.01)
        assert stopping.exit_code == 0
        timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGTERM])
        timer.start()
        assert stopping.wait(3600)
        timer.join()
        assert stopping.exit_code == 143
        assert signal.getsignal(signal.SIGTERM) == before[1], "a second one ends the program"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
