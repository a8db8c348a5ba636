"""Serves the last readings to Prometheus. The server has threads of its own; a scrape reads what is there and asks no
driver.

Names, units and labels are those of NVIDIA's DCGM exporter (its default-counters.csv and render_metrics.go, and the
field names of DCGM's dcgm_fields.h), so that dashboards made for it work; what DCGM has no name for is called
`devexplorer_…` and has base units. What only grows is a counter, and ends in `_total` as OpenMetrics has it. A value
that is not known is absent.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import socketserver
import threading
import time
import wsgiref.simple_server
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from devexplorer.core.base import BadInput, Clock
from devexplorer.core.cli.startup import say
from devexplorer.core.records import DeviceInfo, DeviceSample

PER_MIB = 1 / (1 << 20)
LOOPBACK = "127.0.0.1"
GAUGE, COUNTER = "gauge", "counter"
SILENT_CLIENT_S = 2.0
"""A client that connects and sends nothing is disconnected after this time."""
CLOSE_S = 2.0

Figures = Sequence[tuple[DeviceInfo, DeviceSample]]


class _Family(NamedTuple):
    """One metric: its name, and the field of a sample that it serves."""

    name: str
    meaning: str
    field: str
    factor: float = 1.0
    """From the field's unit to the metric's."""
    kind: str = GAUGE
    whole_card: bool = False
    """Of the card alone: instances of it that said the same would be added up with it."""

    @property
    def sample_name(self) -> str:
        """A counter's ends in `_total`."""
        return f"{self.name}_total" if self.kind == COUNTER else self.name

    def value(self, sample: DeviceSample) -> float | None:
        """None: not known."""
        value = _COMPUTED[self.field](sample) if self.field in _COMPUTED else getattr(sample, self.field)
        return None if value is None else value * self.factor


def _free_bytes(sample: DeviceSample) -> int | None:
    used, total = sample.memory_used_bytes, sample.memory_total_bytes
    if (
        sample.memory_free_bytes is not None
        or used is None
        or total is None
        or sample.memory_reserved_bytes is not None
    ):
        return sample.memory_free_bytes
    return total - used  # where nothing is set apart, or it counts as used


def _state_number(sample: DeviceSample) -> int | None:
    state = sample.performance_state
    return int(state[1:]) if state is not None and re.fullmatch(r"P\d{1,2}", state, re.ASCII) else None


def _process_count(sample: DeviceSample) -> int | None:
    return None if sample.processes is None else len(sample.processes)


_COMPUTED: dict[str, Callable[[DeviceSample], int | None]] = {
    "memory_free_bytes": _free_bytes,
    "performance_state": _state_number,
    "processes": _process_count,
}
"""Fields that are not served as they are."""

_CARDS = (
    _Family("DCGM_FI_DEV_SM_CLOCK", "SM clock in MHz.", "sm_clock_mhz"),
    _Family("DCGM_FI_DEV_MEM_CLOCK", "Memory clock in MHz.", "memory_clock_mhz"),
    _Family("DCGM_FI_DEV_VIDEO_CLOCK", "Video clock in MHz.", "video_clock_mhz"),
    _Family("DCGM_FI_DEV_GPU_TEMP", "Temperature of the chip in degrees Celsius.", "temperature_c"),
    _Family("DCGM_FI_DEV_MEMORY_TEMP", "Temperature of the memory in degrees Celsius.", "memory_temperature_c"),
    _Family("DCGM_FI_DEV_POWER_USAGE", "Power draw in W.", "power_w", whole_card=True),
    _Family("DCGM_FI_DEV_POWER_USAGE_INSTANT", "Power draw of this moment in W.", "power_instant_w", whole_card=True),
    _Family("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "Power cap in W.", "power_cap_w", whole_card=True),
    _Family(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "Energy since the driver was loaded in mJ.",
        "energy_j",
        1e3,
        COUNTER,
        whole_card=True,
    ),
    _Family(
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "PCIe packets that were sent again.",
        "pcie_replays",
        kind=COUNTER,
        whole_card=True,
    ),
    _Family("DCGM_FI_DEV_PCIE_LINK_GEN", "PCIe generation now.", "pcie_generation"),
    _Family("DCGM_FI_DEV_PCIE_LINK_WIDTH", "PCIe lanes now.", "pcie_width"),
    _Family("DCGM_FI_DEV_GPU_UTIL", "Share of time in which a kernel ran, in %.", "utilization_percent"),
    _Family(
        "DCGM_FI_DEV_MEM_COPY_UTIL", "Share of time in which memory was accessed, in %.", "memory_utilization_percent"
    ),
    _Family("DCGM_FI_DEV_ENC_UTIL", "Use of the encoder in %.", "encoder_percent"),
    _Family("DCGM_FI_DEV_DEC_UTIL", "Use of the decoder in %.", "decoder_percent"),
    _Family("DCGM_FI_DEV_FB_TOTAL", "Memory in MiB.", "memory_total_bytes", PER_MIB),
    _Family("DCGM_FI_DEV_FB_USED", "Memory in use in MiB.", "memory_used_bytes", PER_MIB),
    _Family("DCGM_FI_DEV_FB_FREE", "Free memory in MiB.", "memory_free_bytes", PER_MIB),
    _Family("DCGM_FI_DEV_FB_RESERVED", "Memory that the driver keeps in MiB.", "memory_reserved_bytes", PER_MIB),
    _Family("DCGM_FI_DEV_FAN_SPEED", "Fan in % of its greatest speed.", "fan_percent"),
    _Family("DCGM_FI_DEV_PSTATE", "Performance state, 0 (highest) to 15.", "performance_state"),
    _Family(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "Memory errors that ECC corrected since the start.",
        "ecc_corrected",
        kind=COUNTER,
        whole_card=True,
    ),
    _Family(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "Memory errors that ECC could not correct.",
        "ecc_uncorrected",
        kind=COUNTER,
        whole_card=True,
    ),
    _Family("devexplorer_graphics_clock_hertz", "Graphics clock.", "graphics_clock_mhz", 1e6),
    _Family(
        "devexplorer_pcie_sent_bytes_per_second", "From the card over PCIe, measured over 20 ms.", "pcie_tx_bytes_s"
    ),
    _Family("devexplorer_pcie_received_bytes_per_second", "To the card over PCIe, over 20 ms.", "pcie_rx_bytes_s"),
    _Family("devexplorer_nvlink_sent_bytes_per_second", "From the card over all NVLinks.", "nvlink_tx_bytes_s"),
    _Family("devexplorer_nvlink_received_bytes_per_second", "To the card over all NVLinks.", "nvlink_rx_bytes_s"),
    _Family("devexplorer_processes", "Processes that use the card.", "processes"),
)
_CPU = (
    _Family("devexplorer_cpu_utilization_ratio", "Busy share of all cores.", "utilization_percent", 0.01),
    _Family("devexplorer_system_memory_total_bytes", "Memory that this machine may use.", "memory_total_bytes"),
    _Family("devexplorer_system_memory_used_bytes", "Memory of the machine in use.", "memory_used_bytes"),
)
_ALL = (_Family("devexplorer_sample_timestamp_seconds", "Unix time of the reading that is served.", "time_unix_s"),)


class RaisedAlert(NamedTuple):
    """What is raised of one device."""

    info: DeviceInfo
    metric: str
    level: str


class MachineFigures(NamedTuple):
    """What is served of one machine."""

    labels: dict[str, str]
    """Of all of its values."""
    figures: Figures
    up: bool | None = None
    """Whether a machine of a fleet is connected; None: not said, it is the one that serves."""
    read_unix_s: float | None = None
    """When one of its devices was read last."""
    alerts: Sequence[RaisedAlert] = ()


def this_machine(figures: Figures) -> MachineFigures:
    """What is served of the machine that serves."""
    return MachineFigures({"Hostname": socket.gethostname()}, figures)


class _ExportedDevice(NamedTuple):
    """One device of a machine."""

    info: DeviceInfo
    sample: DeviceSample
    labels: dict[str, str]


class LastReadings(Collector):
    """What is served: set `machines` to the newest, from any thread."""

    def __init__(self, clock: Clock = time.time) -> None:
        self.machines: Sequence[MachineFigures] = ()
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """One family for each metric that some device has a value of."""
        machines = self.machines
        everything = [device for machine in machines for device in _devices(machine)]
        cards = [device for device in everything if device.info.kind != "cpu"]
        cpus = [device for device in everything if device.info.kind == "cpu"]
        for families, subjects in ((_CARDS, cards), (_CPU, cpus), (_ALL, everything)):
            for family in families:
                metric = Metric(family.name, family.meaning, family.kind)
                for info, sample, labels in subjects:
                    value = None if family.whole_card and info.parent is not None else family.value(sample)
                    if value is not None:
                        metric.add_sample(family.sample_name, labels, float(value))
                if metric.samples:
                    yield metric
        reasons = Metric(
            "devexplorer_throttled", "1 for each reason for which clocks are lower than they could be.", GAUGE
        )
        for _, sample, labels in cards:
            for reason in sample.throttle_reasons or ():
                reasons.add_sample(reasons.name, {**labels, "reason": reason}, 1.0)
        alerts = Metric("devexplorer_alert", "1 for each alert that is raised.", GAUGE)
        for machine in machines:
            uuids = {info.id: info.uuid for info, _ in machine.figures}
            for info, metric_name, level in machine.alerts:
                labels = {**_labels(info, uuids), **machine.labels, "metric": metric_name, "level": level}
                alerts.add_sample(alerts.name, labels, 1.0)
        up = Metric("devexplorer_machine_up", "1 for a machine that is connected, 0 for one that is not.", GAUGE)
        age = Metric("devexplorer_machine_age_seconds", "Since a device of the machine was read last.", GAUGE)
        for machine in machines:
            if machine.up is not None:
                up.add_sample(up.name, machine.labels, float(machine.up))
                if machine.read_unix_s is not None:
                    age.add_sample(age.name, machine.labels, max(self._clock() - machine.read_unix_s, 0.0))
        yield from (metric for metric in (reasons, alerts, up, age) if metric.samples)


def _devices(machine: MachineFigures) -> Iterator[_ExportedDevice]:
    uuids = {info.id: info.uuid for info, _ in machine.figures}
    for info, sample in machine.figures:
        yield _ExportedDevice(info, sample, {**_labels(info, uuids), **machine.labels})


def _labels(info: DeviceInfo, uuids: Mapping[str, str | None]) -> dict[str, str]:
    """`gpu` is what nvidia-smi counts, and for devices that it does not know their id; `device` is always the id.

    A MIG instance has its card's number, UUID and address, and is told apart by `GPU_I_ID` and `GPU_I_PROFILE`.
    """
    labels = {
        "gpu": info.id if info.nvml_index is None else str(info.nvml_index),
        "UUID": uuids.get(info.parent or "") or info.uuid or "",
        "pci_bus_id": info.bus_id or "",
        "device": info.id,
        "modelName": info.name,
        "simulated": "true" if info.simulated else "false",
    }
    if info.mig_profile is not None:
        labels["GPU_I_PROFILE"] = info.mig_profile
    if info.gpu_instance_id is not None:
        labels["GPU_I_ID"] = str(info.gpu_instance_id)
    return labels


METRICS = "/metrics"
_HOME = f'<!doctype html><title>DevExplorer</title><p>Readings for Prometheus: <a href="{METRICS}">{METRICS}</a>\n'


def _routes(metrics: Any, *, any_name: bool) -> Callable[[dict[str, Any], Any], Any]:
    """The readings at /metrics, a page that leads there at /, and nothing else. Unless `any_name`, only for who asks
    for an address or for localhost: a page of the web whose name was turned to 127.0.0.1 asks for its own name."""

    def answer(environ: dict[str, Any], start: Any) -> Any:
        path = environ.get("PATH_INFO", "")
        if not any_name and not _is_local(environ.get("HTTP_HOST", "")):
            status, kind, body = "421 Misdirected Request", "text/plain", "ask for localhost\n"
        elif path == METRICS:
            return metrics(environ, start)
        elif path == "/":
            status, kind, body = "200 OK", "text/html", _HOME
        else:
            status, kind, body = "404 Not Found", "text/plain", f"try {METRICS}\n"
        data = body.encode()
        start(status, [("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(data)))])
        return [data]

    return answer


def _is_local(host: str) -> bool:
    """Whether a `Host` header names an address or localhost; no browser leaves it out."""
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower().rstrip(".") in ("localhost", "")
    return True


class _Handler(wsgiref.simple_server.WSGIRequestHandler):
    timeout = SILENT_CLIENT_S

    def address_string(self) -> str:
        return str(self.client_address[0])  # no name is looked up

    def log_message(self, format: str, *args: Any) -> None:
        """A line for each scrape would only be noise."""


class _Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = False  # only then are they waited for at the end
    allow_reuse_address = os.name != "nt"  # there it would let two programs listen at one port

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int]) -> None:
        self.address_family = family
        self.open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(
            self
        )  # HTTPServer's own would look up the machine's full name, which can take seconds
        host, port = self.server_address[:2]
        self.server_name, self.server_port = str(host), int(port)
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is its own business."""


class PrometheusServer:
    """Listens from the start on; raises `BadInput` with one line when it cannot. `close` leaves no thread."""

    def __init__(self, port: int, address: str, readings: LastReadings) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(readings)
        where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        try:
            family, _, _, _, sockaddr = socket.getaddrinfo(
                address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        except (OSError, UnicodeError):
            raise BadInput(
                f"--address '{address}' is no address of this machine; write 127.0.0.1 or 0.0.0.0, for example"
            ) from None
        try:
            self._server = _Server(family, (str(sockaddr[0]), port))
        except OSError as error:
            raise BadInput(
                f"--prometheus: nothing can listen at {where} ({_why(error)}); choose another port or address"
            ) from None
        loopback = ipaddress.ip_address(str(sockaddr[0]).partition("%")[0]).is_loopback
        self._server.set_app(_routes(make_wsgi_app(registry), any_name=not loopback))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="prometheus", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the readings are."""
        host, port = self._server.server_address[:2]
        name = str(host)
        return f"http://[{name}]:{port}/metrics" if ":" in name else f"http://{name}:{port}/metrics"

    def close(self) -> None:
        """Answer no more, hang up on who is still there, and wait for the threads."""
        self._server.shutdown()
        self._thread.join(CLOSE_S)
        for connection in list(self._server.open):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it has just ended by itself
        self._server.server_close()


def serving(port: int, address: str | None, ending: ExitStack) -> LastReadings:
    """Serve from now until the end, and say where."""
    served = LastReadings()
    server = PrometheusServer(port, address or LOOPBACK, served)
    ending.callback(server.close)
    say(f"serving {server.url}")
    return served


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
