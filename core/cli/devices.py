"""`devexplorer devices`: every device with both of its numbers, and why one cannot be used. Creates no CUDA context.

As JSON, and as text with `--details`, with everything that is known of each device, from one reading, and how the
devices are joined."""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from devexplorer.core.base import MISSING, bytes_text, number_text, printable, running_text
from devexplorer.core.cli.terminal import console, print_document, table
from devexplorer.core.cli.torch_answers import TorchAnswers, TorchQuestion
from devexplorer.core.devices import apple
from devexplorer.core.devices.catalog import Catalog, join
from devexplorer.core.devices.cpu import LEAST_S, CpuReader
from devexplorer.core.devices.cuda_visible_devices import VARIABLE
from devexplorer.core.devices.drm import Drm, DrmCard
from devexplorer.core.devices.nvml.library import START_LIMIT_S, Card, Nvml
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.records import DeviceDetails, DeviceInfo, DeviceSample, Event, Problem, ProcessUse, Topology
from devexplorer.core.records.base import plain
from devexplorer.core.telemetry.device_facts import FactGroup, Writer, facts, label_width
from devexplorer.core.telemetry.sampler import Sampler
from devexplorer.core.telemetry.topology_text import matrix
from devexplorer.core.virtual.device.machine import VirtualMachine, machine_of, topology

# One device, and how devices are joined, as JSON objects and as text. Pure functions, any thread.
# In the objects every key is always there: null, and a reason, for what is not known. In the text each reason is
# written once.

_OURS = ("device", "time_unix_s", "more", "missing", "simulated", "reason", "parent", "threads")
"""Fields that are not readings, or do not apply to most devices."""
_WHERE_IT_DIFFERS = {"mig_pending": "mig", "ecc_pending": "ecc"}
"""Fields that are null because nothing is to change, as long as the other one is known."""
NO_CHANGE = "no change is pending"


def device_document(
    info: DeviceInfo, sample: DeviceSample | None, details: DeviceDetails | None, problems: Sequence[Problem]
) -> dict[str, Any]:
    """All of `info`, and `"sample"` and `"details"` with every field of those records.

    `"details"."missing"` says for every field that is null, of `info` too, why it is.
    """
    writer = Writer(info, sample, details, problems)
    made: dict[str, dict[str, Any]] = {
        "sample": (plain(sample) or dict.fromkeys(DeviceSample.__struct_fields__))
        | {"device": info.id, "simulated": info.simulated},
        "details": (plain(details) or dict.fromkeys(DeviceDetails.__struct_fields__))
        | {"device": info.id, "simulated": info.simulated},
    }
    known = {name: value for document in made.values() for name, value in document.items() if value is not None}
    top = {
        name: known.get(name) if value is None and name not in _OURS else value for name, value in plain(info).items()
    }

    def why(field: str) -> str:
        if field in _WHERE_IT_DIFFERS and _WHERE_IT_DIFFERS[field] in known:
            return NO_CHANGE
        return writer.why_null(field)

    made["details"]["missing"] = {
        field: why(field)
        for document in (*made.values(), top)
        for field, value in document.items()
        if value is None and field not in _OURS and field not in known
    }
    links = details.nvlinks if details is not None else None
    for field in ("tx_bytes_s", "rx_bytes_s"):
        if any(link.active and getattr(link, field) is None for link in links or ()):
            made["details"]["missing"][f"nvlinks.{field}"] = (
                "a link's rate needs two readings of its counter, half a minute apart"
            )
    made["details"]["more"] = details.more if details is not None else {}
    return {**top, **made}


def topology_document(topologies: Sequence[Topology]) -> dict[str, Any]:
    """Every pair and every affinity of all sources."""
    return {
        "links": [plain(link) for topology in topologies for link in topology.links],
        "affinities": [plain(near) for topology in topologies for near in topology.affinities],
    }


def facts_in_short(groups: Sequence[FactGroup]) -> str:
    """What is known, a line each; then what is not, by its reason, so that a reason that holds for fifty figures is
    read once."""
    width = label_width(groups)
    lines: list[str] = []
    unknown: dict[str, dict[str, list[str]]] = {}
    for group in groups:
        known = [row for row in group.rows if row.value != MISSING]
        if known:
            lines.append(group.title)
        lines += [row.line(width) for row in known]
        for row in group.rows:
            if row.value == MISSING:
                unknown.setdefault(row.why, {}).setdefault(group.title, []).append(row.label)
    for why, titles in unknown.items():
        lines.append(f"Not known{': ' * bool(why)}{why}")
        lines += [f"  {title}: {'; '.join(labels)}" for title, labels in titles.items()]
    return "\n".join(lines)


LISTING_S = 60.0
"""A listing ends by itself: each of its calls has a limit."""


class MachineDevices(NamedTuple):
    """This machine's devices and what answers for them."""

    found: Catalog
    drm: Drm
    drm_cards: tuple[DrmCard, ...]
    torch_side: TorchAnswers
    virtual: VirtualMachine | None
    """None without `--virtual`."""

    def joined(self, cards: Sequence[Card], problems: Sequence[Problem]) -> Catalog:
        """Every device, with NVML's cards and problems as they are now."""
        virtual = () if self.virtual is None else self.virtual.devices()
        if (reason := self.torch_side.virtual_gpus) is not None:
            virtual = tuple(replace(info, usable=False, reason=reason) for info in virtual)
        return join(
            CpuReader().info(),
            cards,
            self.torch_side.devices,
            virtual,
            (*problems, *self.torch_side.problems),
            datasheets=load_profiles(),
            cuda_visible_devices=os.environ.get(VARIABLE),
            cuda_device_order=os.environ.get("CUDA_DEVICE_ORDER"),
            drm=self.drm_cards,
        )


class DevicesReadings(NamedTuple):
    """One reading of everything, by device id."""

    found: Catalog
    """What each device is, after it was read: a card may have been lost meanwhile."""
    samples: dict[str, DeviceSample]
    details: dict[str, DeviceDetails]
    topologies: tuple[Topology, ...]


def machine(virtual_spec: str | None, nvml: Nvml, drm: Drm | None = None) -> MachineDevices:
    """Look at everything there is, while torch is asked in a process of its own. Starts `nvml`; the caller closes
    it."""
    simulated = None if virtual_spec is None else machine_of(virtual_spec)
    question = TorchQuestion()
    try:
        nvml.start()
        cards = nvml.cards()
        drm = drm or Drm()
        drm_cards = drm.cards()
        torch_side = question.answers()
    finally:
        question.close()
    here = MachineDevices(Catalog(), drm, drm_cards, torch_side, simulated)
    return here._replace(found=here.joined(cards, nvml.problems))


def read(here: MachineDevices, nvml: Nvml, cpu: CpuReader) -> DevicesReadings:
    """Read every device once; what a card does not answer in time is missing, with that reason. Closes `nvml`."""
    events: list[Event] = []
    sampler = Sampler(events.append, nvml, cpu, call_limit_s=nvml.limit_s)
    sampler.set_names(here.found.names)
    try:
        samples = {sample.device: sample for sample in sampler.read_round(list_patience_s=LISTING_S)}
        catalog = here.joined(sampler.cards, sampler.problems)
    finally:
        sampler.stop()
    details = {event.device: event for event in events if isinstance(event, DeviceDetails)}
    topologies = [event for event in events if isinstance(event, Topology)]
    now = time.time()
    for sample in here.torch_side.samples:
        samples.setdefault(sample.device, sample)
    for info in catalog.devices:
        if info.kind == "mps" and info.usable:
            details[info.id] = apple.details(info.id, now)
    for card in here.drm_cards:
        device = catalog.drm_names.get(card.bus_id or "", card.drm_id)
        samples.setdefault(device, here.drm.read(card, device, now))
        details.setdefault(device, here.drm.details(card, device, now))
    if here.virtual is not None:
        for gpu in here.virtual.gpus:
            samples[gpu.id] = here.virtual.device_sample(gpu.id, now)
            details[gpu.id] = gpu.details(now)
        topologies.append(topology([(gpu.id, gpu.profile) for gpu in here.virtual.gpus]))
    return DevicesReadings(catalog, samples, details, tuple(topologies))


def devices(arguments: argparse.Namespace, nvml: Nvml | None = None, drm: Drm | None = None) -> int:
    """Print the catalog; `nvml` and `drm` replace the real ones in tests."""
    nvml, cpu = nvml or Nvml(open_limit_s=START_LIMIT_S), CpuReader()
    began = time.monotonic()
    cpu.read(
        time.time()
    )  # utilization is counted between two readings, and looking at everything mostly takes longer than that needs
    try:
        here = machine(arguments.virtual, nvml, drm)
        time.sleep(max(2 * LEAST_S - (time.monotonic() - began), 0.0))
        readings = read(here, nvml, cpu) if arguments.json or arguments.details else None
    finally:
        nvml.close()
    if arguments.json:
        assert readings is not None
        print_document(**_document(readings))
    else:
        _print(here.found if readings is None else readings.found, readings, here.torch_side.virtual_gpus)
    return 0


def _document(readings: DevicesReadings) -> dict[str, Any]:
    catalog = readings.found
    described = [
        device_document(info, readings.samples.get(info.id), readings.details.get(info.id), catalog.problems)
        for info in catalog.devices
    ]
    return {
        "host": platform.node(),
        "time_unix_s": time.time(),
        "devices": described,
        "problems": catalog.problems,
        "topology": topology_document(readings.topologies),
    }


def _print(catalog: Catalog, readings: DevicesReadings | None, no_virtual_gpus: str | None) -> None:
    listing = table("device", "name", ">CUDA ordinal", ">nvidia-smi", ">memory", ">used", "cc", "usable", "uuid")
    for info in catalog.devices:
        listing.add_row(
            f"  {info.id}" if info.parent is not None else info.id,
            f"{info.name} (simulated)" if info.simulated else info.name,
            _number(info.cuda_ordinal),
            _number(info.nvml_index),
            bytes_text(info.memory_total_bytes),
            bytes_text(info.memory_used_bytes),
            info.compute_capability or MISSING,
            "yes" if info.usable else f"no: {info.reason}",
            info.uuid or MISSING,
        )
    out = console()
    out.print(listing)
    if readings is not None:
        for info in catalog.devices:
            simulated = " (simulated)" if info.simulated else ""
            out.print(f"\n{info.id}: {info.name}{simulated}", style="bold")
            groups = facts(info, readings.samples.get(info.id), readings.details.get(info.id), catalog.problems)
            out.print(facts_in_short(groups))
            sample = readings.samples.get(info.id)
            if sample is not None and sample.processes:
                out.print(_processes(sample.processes))
        joined = [
            info.id
            for info in catalog.devices
            if info.kind != "cpu" and info.parent is None and not info.id.startswith("virtual:")
        ]
        if len(joined) > 1:
            out.print(f"\nHow they are joined\n\n{matrix(readings.topologies, joined)}")
        out.print()
    for problem in catalog.problems:
        subject = " ".join(part for part in (problem.device, problem.field) if part)
        out.print(f"{subject}: {problem.reason}" if subject else problem.reason, style="yellow")
    if not any(info.usable and info.kind != "cpu" for info in catalog.devices):
        instead = 'Try it with virtual ones: devexplorer --virtual "2x Tesla T4"'
        if no_virtual_gpus is not None:
            instead = f"Virtual ones are not available: {no_virtual_gpus}"
        out.print(f"No GPU that can be used. {instead}", style="dim")


def _processes(uses: Sequence[ProcessUse]) -> str:
    """A line each, the largest first."""
    lines = ["Processes"]
    for use in sorted(uses, key=lambda use: (-(use.memory_bytes or 0), use.pid)):
        parts = (
            f"pid {use.pid}",
            f"user {use.user or MISSING}",
            f"GPU {number_text(use.utilization_percent)} %",
            f"memory {bytes_text(use.memory_bytes)} at {number_text(use.memory_utilization_percent)} %",
            f"CPU {number_text(use.cpu_percent)} %",
            f"host {bytes_text(use.host_memory_bytes)}",
            f"running {running_text(use.running_s)}",
            use.command or use.name or MISSING,
        )
        lines.append(printable(f"  {'; '.join(parts)}"))
    return "\n".join(lines)


def _number(value: int | None) -> str:
    return MISSING if value is None else str(value)
