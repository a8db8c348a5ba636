"""Readings of `devexplorer watch` for Prometheus: names, units and labels, who may ask, threads that end."""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from fakes.nvml import FakeCard, FakeNvml
from fakes.watching import NOW, UUID, full, info, nothing, patient, run  # noqa: F401 - `patient` is for every test here
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from devexplorer.core.base import BadInput
from devexplorer.core.cli.arguments import parse
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.exporter.prometheus import LastReadings, PrometheusServer, this_machine
from devexplorer.core.records import DeviceSample
from devexplorer.core.watch import command as watch_module
from devexplorer.core.watch.command import watch
from devexplorer.core.watch.table import WatchReading


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

    def serve(*readings: WatchReading) -> dict[str, list[Any]]:
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
    found = served(card, WatchReading(msgspec.structs.replace(part.info, **about), part.sample))
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
    found = served(WatchReading(info("cpu", "cpu"), cpu))
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


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("--prometheus often", "--prometheus 'often' is not a port"),
        ("--prometheus 65536", "is not a port; write a number from 1 to 65535"),
        ("--prometheus ²", "is not a port"),
        ("--address 0.0.0.0", "give a port with --prometheus"),
    ],
)
def test_a_bad_port_is_found_before_anything_starts(argv: str, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        watch(parse(["watch", *argv.split()]), Nvml(FakeNvml()))
    assert expected in str(caught.value)
