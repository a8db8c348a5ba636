"""`devexplorer env`: versions, drivers and settings, for bug reports, and the Python environments that were found.
Names no user: the home folder is `~`."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
from collections.abc import Iterator, Mapping
from typing import Any

import devexplorer
from devexplorer.core.base import MISSING, bytes_text, printable
from devexplorer.core.cli.devices import machine
from devexplorer.core.cli.terminal import print_document
from devexplorer.core.devices.nvml.library import START_LIMIT_S, Card, Nvml
from devexplorer.core.devices.nvml.listing import in_pid_namespace
from devexplorer.core.feature import named

PACKAGES = (
    "torch",
    "PySide6-Essentials",
    "pyqtgraph",
    "nvidia-ml-py",
    "psutil",
    "numpy",
    "msgspec",
    "platformdirs",
    "safetensors",
    "rich",
    "pyarrow",
    "prometheus-client",
)
VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NVML_BASED_CUDA_CHECK", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "QT_QPA_PLATFORM", "QT_SCALE_FACTOR", "XDG_SESSION_TYPE",
)  # fmt: skip


def facts(virtual_spec: str | None) -> dict[str, object]:
    """Everything that the command prints."""
    nvml = Nvml(open_limit_s=START_LIMIT_S)
    try:
        here = machine(virtual_spec, nvml)
        cards = nvml.cards()
    finally:
        nvml.close()
    catalog, torch_side = here.found, here.torch_side
    return {
        "devexplorer": devexplorer.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "container": "yes: with its own process IDs" if in_pid_namespace() else "no",
        "packages": {name: _version(name) for name in PACKAGES},
        "torch": torch_side.facts,
        "driver_version": next((info.driver_version for info in catalog.devices if info.driver_version), None),
        "virtual_gpus": torch_side.virtual_gpus or "available",
        "devices": catalog.devices,
        "cards": [_card(card) for card in cards],
        "problems": catalog.problems,
        "variables": {name: _readable(os.environ.get(name)) for name in VARIABLES},
        "environments": [found for module in named("pythons") for found in module.described()],
    }


def _card(card: Card) -> dict[str, object]:
    """What often explains what a card does not do; no serial number."""
    number = f"{card.index}" if card.mig_instance is None else f"{card.index}/{card.mig_instance}"
    modes = {
        "mig": card.mig,
        "mig_profile": card.mig_profile,
        "ecc": card.ecc,
        "compute_mode": card.compute_mode,
        "broken": card.broken,
    }
    return {"nvml_index": number, **modes}


def _mode(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _readable(value: str | None) -> str | None:
    """Without the bytes that are no text, which JSON cannot hold."""
    return None if value is None else value.encode("utf-8", "replace").decode()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def env(arguments: argparse.Namespace) -> int:
    """Print the facts, as text to paste or as JSON."""
    known = facts(arguments.virtual)
    if arguments.json:
        print_document(**known)
        return 0
    for line in _lines(known):
        print(printable(line))
    return 0


def _lines(known: Mapping[str, Any]) -> Iterator[str]:
    for key in ("devexplorer", "python", "platform", "container", "driver_version", "virtual_gpus"):
        yield f"{key:<24}{known[key] or MISSING}"
    for group in ("packages", "torch", "variables"):
        yield from ("", group)
        content = known[group]
        for key, value in (
            content.items() if isinstance(content, dict) else [("not available", "see the problem of cuda below")]
        ):
            yield f"  {key:<34}{MISSING if value is None else value}"
    yield from ("", "devices")
    for info in known["devices"]:
        state = "usable" if info.usable else f"not usable: {info.reason}"
        simulated = ", simulated" if info.simulated else ""
        yield f"  {info.id:<10}{info.name}, {bytes_text(info.memory_total_bytes)}, {state}{simulated}"
    for card in known["cards"]:
        modes = ", ".join(
            f"{name} {_mode(value)}" for name, value in card.items() if value is not None and name != "nvml_index"
        )
        yield f"  nvidia-smi {card['nvml_index']}: {modes or MISSING}"
    for problem in known["problems"]:
        subject = " ".join(part for part in (problem.device, problem.field) if part)
        yield f"  problem{f' of {subject}' if subject else ''}: {problem.reason}"
    yield from ("", "Python environments (devexplorer --python PATH has the engine in one of them)")
    for found in known["environments"]:
        torch = f"torch {found['torch']}" if found["torch"] else "no torch"
        yield f"  {found['kind']:<9}Python {found['version'] or MISSING:<8} {torch:<22} {found['path']}"
