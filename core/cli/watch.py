"""`devexplorer watch`: live readings of every device, as a table that renews itself or as one JSON object per device and tick."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from rich.live import Live
from rich.table import Table

from devexplorer.core.benchmark.spec import parse_count, parse_seconds
from devexplorer.core.cli.devices import catalog
from devexplorer.core.cli.findings import Findings
from devexplorer.core.cli.output import console, print_document, table
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.nvml import Nvml
from devexplorer.core.formats import MISSING, bytes_text, number_text
from devexplorer.core.records.devices import DeviceSample
from devexplorer.core.records.messages import Event
from devexplorer.core.telemetry.sampler import Sampler


def watch(arguments: argparse.Namespace) -> int:
    """Read every device again and again."""
    findings = Findings()
    interval = findings.checked(partial(parse_seconds, arguments.interval, "--interval"), 1.0)
    count = None if arguments.count is None else findings.checked(partial(parse_count, arguments.count, "--count"), None)
    findings.check_virtual(arguments.virtual)
    findings.demand_none()
    nvml = Nvml()
    try:
        found = catalog(arguments.virtual, nvml)
        ticks = _ticks(found, nvml, interval, count)
        if arguments.json:
            for samples in ticks:
                for sample in samples:
                    print_document(**_object(sample))
                sys.stdout.flush()
        else:
            _show(ticks, {info.id: info.name for info in found.devices})
    finally:
        nvml.close()
    return 0


def _show(ticks: Iterator[list[DeviceSample]], names: dict[str, str]) -> None:
    """A table that renews itself on a terminal; elsewhere one after the other."""
    out = console()
    if not out.is_terminal:
        for samples in ticks:
            out.print(_table(samples, names))
            sys.stdout.flush()
        return
    with Live(console=out, auto_refresh=False, vertical_overflow="visible") as live:
        for samples in ticks:
            live.update(_table(samples, names), refresh=True)


def _ticks(found: Catalog, nvml: Nvml, interval: float, count: int | None) -> Iterator[list[DeviceSample]]:
    """The readings of each tick, without drift: the next tick is due `interval` after the last was due."""
    events: list[Event] = []
    sampler = Sampler(events.append, nvml, CpuReader(), interval)
    sampler.set_names(found.names)
    read_virtual = _virtual_reader(found)
    sampler.tick()  # utilization is a difference: this reading only starts it
    read_virtual()
    due = time.monotonic() + min(interval, 0.1)
    tick = 0
    while count is None or tick < count:
        time.sleep(max(due - time.monotonic(), 0))
        events.clear()
        sampler.tick()
        samples = [event for event in events if isinstance(event, DeviceSample)] + read_virtual()
        order = {info.id: position for position, info in enumerate(found.devices)}
        yield sorted(samples, key=lambda sample: order.get(sample.device, len(order)))
        tick += 1
        due = max(due + interval, time.monotonic())


def _virtual_reader(found: Catalog) -> Callable[[], list[DeviceSample]]:
    ids = [info.id for info in found.devices if info.simulated]
    if not ids:
        return list
    from devexplorer.core.virtual.backend import install

    machine = install()
    return lambda: [sample for name in ids if (sample := machine.device_sample(name, time.time())) is not None]


def _object(sample: DeviceSample) -> dict[str, object]:
    return {
        "time_unix_s": sample.time_unix_s,
        "device": sample.device,
        "memory_used_bytes": sample.memory_used_bytes,
        "memory_total_bytes": sample.memory_total_bytes,
        "utilization_percent": sample.utilization_percent,
        "temperature_c": sample.temperature_c,
        "power_w": sample.power_w,
        "sm_clock_mhz": sample.sm_clock_mhz,
        "processes": sample.processes,
        "simulated": sample.simulated,
    }


def _table(samples: list[DeviceSample], names: dict[str, str]) -> Table:
    listing = table("device", "name", ">used", ">of", ">util %", ">°C", ">W", ">MHz", "")
    for sample in samples:
        listing.add_row(
            sample.device, names.get(sample.device, MISSING), bytes_text(sample.memory_used_bytes), bytes_text(sample.memory_total_bytes),
            number_text(sample.utilization_percent), number_text(sample.temperature_c), number_text(sample.power_w),
            MISSING if sample.sm_clock_mhz is None else str(sample.sm_clock_mhz), "simulated" if sample.simulated else "",
        )  # fmt: skip
    return listing
