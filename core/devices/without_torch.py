"""What torch will call the cards of this machine, worked out without importing torch. Any thread.

`watch` names cards as `devices` does, and has no seconds to spare for torch. The kind of build is in torch's
version.py; CUDA numbers cards by rules that are known (CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES; see `visible`), except
that cards of several models come fastest first. Where the number is not certain, a card goes by NVML's.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from devexplorer.core.devices.cuda_visible_devices import VARIABLE, visible_cards
from devexplorer.core.devices.nvml_card import Card
from devexplorer.core.records import DeviceInfo, Problem

ORDER = "CUDA_DEVICE_ORDER"
NOT_CERTAIN = (
    f"cards of several models: CUDA counts the fastest first, and watch does not ask it; set {ORDER}=PCI_BUS_ID to see"
    " which is which"
)
NO_TORCH = "torch is not installed in this Python; install it, or name a Python that has it with --python"
MIG = "in MIG mode; which instance torch uses is in devexplorer devices"


class Build(NamedTuple):
    """What torch was built for."""

    version: str | None = None
    cuda: str | None = None
    hip: str | None = None
    xpu: str | None = None
    reason: str | None = None
    """Why nothing is known of it."""


def installed_build() -> Build:
    """Read torch's version.py; nothing of torch is imported."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return Build(reason=NO_TORCH)
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return Build(reason=f"torch is damaged: its version.py cannot be read ({error.strerror})")
    values = dict(re.findall(r"^(\w+)\b[^=\n]*= *'([^'\n]*)'", text, re.MULTILINE))
    return Build(values.get("__version__"), values.get("cuda"), values.get("hip"), values.get("xpu"))


class ExpectedDevices(NamedTuple):
    """What torch would list, and why some cards are not among it."""

    devices: tuple[DeviceInfo, ...]
    problems: tuple[Problem, ...]


def expected_devices(
    cards: Sequence[Card], buses: Mapping[str, Sequence[str]], environ: Mapping[str, str], build: Build, cpu_name: str
) -> ExpectedDevices:
    """torch's devices besides the CPU. `buses`: maker -> PCI addresses of AMD's and Intel's cards that the kernel
    lists."""
    if build.reason is not None:
        return ExpectedDevices((), (Problem(build.reason, field="cuda"),))
    devices: list[DeviceInfo] = []
    problems: list[Problem] = []
    whole = [card for card in cards if card.mig_instance is None]
    if build.hip is not None:
        if not any(environ.get(name) for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", VARIABLE)):
            devices += _in_order("cuda", "ROCm device", buses.get("AMD", ()))
    elif build.cuda is None:
        if whole:
            problems.append(
                Problem(f"this torch ({build.version}) is a CPU build: it cannot use CUDA devices", field="cuda")
            )
    elif any(card.mig for card in whole):
        problems.append(Problem(MIG, field="cuda"))
    elif environ.get(ORDER) != "PCI_BUS_ID" and len({card.name for card in whole}) > 1:
        problems.append(Problem(NOT_CERTAIN, field="cuda"))
    else:
        devices += _cuda(whole, environ.get(VARIABLE))
    if build.xpu is not None and not environ.get("ZE_AFFINITY_MASK"):
        devices += _in_order("xpu", "xpu device", buses.get("Intel", ()))
    if sys.platform == "darwin" and platform.machine() == "arm64":
        devices.append(DeviceInfo(id="mps", kind="mps", name=f"{cpu_name} GPU", memory_shared=True))
    return ExpectedDevices(tuple(devices), tuple(problems))


def _cuda(cards: Sequence[Card], visible: str | None) -> list[DeviceInfo]:
    by_bus = sorted(cards, key=lambda card: ((card.bus_id or "").lower(), card.index))
    order = visible_cards(visible, [card.uuid for card in by_bus]).order
    return [
        DeviceInfo(
            id=f"cuda:{ordinal}",
            kind="cuda",
            name=by_bus[number].name,
            uuid=by_bus[number].uuid,
            bus_id=by_bus[number].bus_id,
            cuda_ordinal=ordinal,
        )
        for ordinal, number in enumerate(order)
    ]


def _in_order(kind: str, name: str, buses: Sequence[str]) -> list[DeviceInfo]:
    return [
        DeviceInfo(id=f"{kind}:{index}", kind=kind, name=f"{name} {index}", bus_id=bus)
        for index, bus in enumerate(sorted(buses))
    ]
