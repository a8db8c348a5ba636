"""`devexplorer devices`: every device with both of its numbers, and why one cannot be used. Creates no CUDA context."""

from __future__ import annotations

import argparse
import os

from devexplorer.core.cli.output import console, print_document, table
from devexplorer.core.devices.catalog import Catalog, join
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.datasheets import datasheets
from devexplorer.core.devices.nvml import Nvml
from devexplorer.core.formats import MISSING, bytes_text
from devexplorer.core.virtual.profiles import parse_virtual


def catalog(virtual_spec: str | None, nvml: Nvml) -> Catalog:
    """Every device of this machine and the virtual ones asked for."""
    from devexplorer.core.devices.torch_devices import TorchBackend
    from devexplorer.core.virtual import backend as virtual

    torch_side = TorchBackend()
    infos, problems = list(torch_side.devices()), list(torch_side.problems())
    if virtual_spec is not None:
        profiles = parse_virtual(virtual_spec)
        machine = virtual.install()
        machine.add(profiles)
        infos += machine.devices()
        problems += machine.problems()
    cards = nvml.cards()
    return join(
        CpuReader().info(),
        cards,
        infos,
        problems=(*nvml.problems, *problems),
        datasheets=datasheets(),
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        cuda_device_order=os.environ.get("CUDA_DEVICE_ORDER"),
    )


def devices(arguments: argparse.Namespace) -> int:
    """Print the catalog."""
    nvml = Nvml()
    try:
        found = catalog(arguments.virtual, nvml)
    finally:
        nvml.close()
    if arguments.json:
        print_document(devices=found.devices, problems=found.problems)
        return 0
    listing = table("device", "name", ">CUDA ordinal", ">nvidia-smi", ">memory", ">used", "cc", "usable", "uuid")
    for info in found.devices:
        listing.add_row(
            info.id,
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
    for problem in found.problems:
        subject = " ".join(part for part in (problem.device, problem.field) if part)
        out.print(f"{subject}: {problem.reason}" if subject else problem.reason, style="yellow")
    if not any(info.usable and info.kind != "cpu" for info in found.devices):
        out.print('No GPU that can be used. Try it with virtual ones: devexplorer --virtual "2x Tesla T4"', style="dim")
    return 0


def _number(value: int | None) -> str:
    return MISSING if value is None else str(value)
