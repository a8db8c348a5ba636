"""`devexplorer env`: versions, drivers and settings, for bug reports. Names no user, no path below the home folder."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform

from devexplorer.core.cli.devices import catalog
from devexplorer.core.cli.output import print_document
from devexplorer.core.devices.nvml import Nvml
from devexplorer.core.formats import MISSING, bytes_text

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
)
VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "NVIDIA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NVML_BASED_CUDA_CHECK", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "QT_QPA_PLATFORM", "QT_SCALE_FACTOR", "XDG_SESSION_TYPE",
)  # fmt: skip


def facts(virtual_spec: str | None) -> dict[str, object]:
    """Everything that the command prints."""
    from devexplorer.core.devices.torch_devices import torch_facts
    from devexplorer.core.virtual.backend import unavailable

    nvml = Nvml()
    try:
        found = catalog(virtual_spec, nvml)
    finally:
        nvml.close()
    torch_side = torch_facts()._asdict()
    return {
        "devexplorer": importlib.metadata.version("devexplorer"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "torch": torch_side,
        "driver_version": next((info.driver_version for info in found.devices if info.driver_version), None),
        "virtual_gpus": unavailable() or "available",
        "devices": found.devices,
        "problems": found.problems,
        "variables": {name: _readable(os.environ.get(name)) for name in VARIABLES},
    }


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
    found = facts(arguments.virtual)
    if arguments.json:
        print_document(**found)
        return 0
    for key in ("devexplorer", "python", "platform", "driver_version", "virtual_gpus"):
        print(f"{key:<24}{found[key] or MISSING}")
    for group in ("packages", "torch", "variables"):
        print(f"\n{group}")
        content = found[group]
        assert isinstance(content, dict)
        for key, value in content.items():
            print(f"  {key:<34}{MISSING if value is None else value}")
    print("\ndevices")
    for info in found["devices"]:  # type: ignore[attr-defined]
        state = "usable" if info.usable else f"not usable: {info.reason}"
        simulated = ", simulated" if info.simulated else ""
        print(f"  {info.id:<10}{info.name}, {bytes_text(info.memory_total_bytes)}, {state}{simulated}")
    for problem in found["problems"]:  # type: ignore[attr-defined]
        print(f"  problem: {problem.reason}")
    return 0
