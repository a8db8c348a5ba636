"""Joins what NVML, the Linux kernel, the engine's torch and the CPU say into one list of devices; and what torch will
call the cards, worked out without importing it. Pure functions, any thread; no torch.

A card has two numbers: NVML's index and torch's CUDA ordinal. They differ as soon as CUDA_VISIBLE_DEVICES is set or
models are mixed, so the two sides are joined by UUID, compared as 16 bytes (spellings differ: `GPU-`, `MIG-`, none).
A MIG instance is a device of its own, below its card: `cuda:N` where torch uses it, else `nvml:N/I`.

`watch` names cards as `devices` does, and has no seconds to spare for torch. The kind of build is in torch's
version.py; CUDA numbers cards by rules that are known (CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES; see `visible`), except
that cards of several models come fastest first. Where the number is not certain, a card goes by NVML's.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from devexplorer.core.devices.cuda_visible_devices import VARIABLE, hidden_by, visible_cards
from devexplorer.core.devices.nvml_card import Card
from devexplorer.core.records import DeviceInfo, Problem

if TYPE_CHECKING:
    from devexplorer.core.devices.drm import DrmCard
    from devexplorer.core.devices.profiles import Profile


_NOT_YET = "the engine has not reported yet"
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")


def uuid_bytes(text: str | None) -> bytes | None:
    """The 16 bytes of a UUID however it is spelled: `GPU-…`, `MIG-…`, bare, any case, with or without hyphens.

    None where there is none, and for the old form `MIG-GPU-<uuid>/<gi>/<ci>`, whose UUID is the card's.

    >>> uuid_bytes("GPU-00112233-4455-6677-8899-AABBCCDDEEFF") == uuid_bytes("00112233445566778899aabbccddeeff")
    True
    """
    if text is None or "/" in text:
        return None
    bare = text.strip().lower().removeprefix("mig-").removeprefix("gpu-")
    return bytes.fromhex(bare.replace("-", "")) if _UUID.fullmatch(bare) else None


class Catalog(msgspec.Struct, frozen=True):
    """Every device in the order in which they are shown, and what could not be found out."""

    devices: tuple[DeviceInfo, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        """UUID -> device id of everything that NVML can watch, MIG instances included: what the sampler calls its
        cards."""
        return {info.uuid: info.id for info in self.devices if info.uuid is not None and info.nvml_index is not None}

    @property
    def card_names(self) -> dict[str, str]:
        """`nvml:N`, as the sampler's problems name a card -> its device id."""
        cards = (info for info in self.devices if info.nvml_index is not None and info.parent is None)
        return {f"nvml:{info.nvml_index}": info.id for info in cards}

    @property
    def drm_names(self) -> dict[str, str]:
        """PCI address -> device id of everything that the kernel alone watches."""
        return {info.bus_id: info.id for info in self.devices if info.bus_id is not None and info.nvml_index is None}


def join(
    cpu: DeviceInfo,
    cards: Sequence[Card] = (),
    torch_devices: Sequence[DeviceInfo] | None = None,
    virtual: Sequence[DeviceInfo] = (),
    problems: Sequence[Problem] = (),
    *,
    datasheets: Mapping[str, Profile] | None = None,
    cuda_visible_devices: str | None = None,
    cuda_device_order: str | None = None,
    drm: Sequence[DrmCard] = (),
) -> Catalog:
    """One list: the CPU, cuda by ordinal, other torch devices, `nvml:N` and `drm:N` for cards that torch cannot use,
    virtual ones.

    A card in MIG mode comes where its first usable instance belongs, its instances right behind it with `parent` set.
    `torch_devices` is what the engine lists (its CPU replaces `cpu`, its virtual devices go last); None: it has not
    reported yet. `problems` come from both sides; those about `nvml:N` are renamed to the device that the card became.
    The two variables are those of the engine's environment. `datasheets`: card name -> figures.
    """
    engine = list(torch_devices or ())
    cpu = next((info for info in engine if info.id == "cpu"), cpu)
    virtual = [*(info for info in engine if info.kind == "virtual"), *virtual]
    others = [info for info in engine if info.kind not in ("cpu", "cuda", "virtual")]
    no_torch = _no_torch_reason(torch_devices, problems, cuda_visible_devices)

    paired = _pairs(sorted((info for info in engine if info.kind == "cuda"), key=_ordinal), cards)
    cuda: list[DeviceInfo] = []
    cuda_alone: list[DeviceInfo] = []
    unusable: list[DeviceInfo] = []
    place: dict[tuple[int, int | None], DeviceInfo] = {}
    for info, card in paired:
        if card is None:
            (cuda if info.uuid or info.bus_id else cuda_alone).append(info)
            continue
        joined = _with_card(info, card)
        if not info.usable:
            joined = replace(joined, id=_listed_id(card), kind="nvml")
        place[_where(card)] = joined
        (cuda if info.usable else unusable).append(joined)
    for card in cards:
        if _where(card) not in place:
            place[_where(card)] = _with_card(_unusable(card, cards, no_torch), card)
            unusable.append(place[_where(card)])
    unusable.sort(key=lambda info: (info.nvml_index or 0, info.id))
    cuda += cuda_alone

    top = [*cuda, *others]
    top, alone = _with_drm(top, drm, torch_devices is not None)
    ids = {index: info.id for (index, part), info in place.items() if part is None}
    listed = _families([cpu, *top, *unusable, *alone], ids, place)
    devices = [_with_datasheet(info, datasheets or {}) for info in listed]
    names = {f"nvml:{index}": device for index, device in ids.items()}
    renamed = [replace(problem, device=names.get(problem.device or "", problem.device)) for problem in problems]
    mixed = _mixed_models(cards, cuda_device_order)
    return Catalog((*devices, *virtual), tuple(dict.fromkeys([*renamed, *mixed])))


def _where(card: Card) -> tuple[int, int | None]:
    return card.index, card.mig_instance


def _listed_id(card: Card) -> str:
    """The id of what torch cannot use: `nvml:N`, and `nvml:N/I` for a MIG instance."""
    return f"nvml:{card.index}" if card.mig_instance is None else f"nvml:{card.index}/{card.mig_instance}"


def _pairs(cuda: Sequence[DeviceInfo], cards: Sequence[Card]) -> list[tuple[DeviceInfo, Card | None]]:
    """Each of torch's devices with NVML's card, where that is known: each card once.

    By UUID; by PCI address where one side has no UUID (a MIG instance has its card's address, too); and the one device
    that is left is the one card that is too broken to say what it is.
    """
    free = {_where(card): card for card in cards}

    def take(wanted: Callable[[Card], bool]) -> Card | None:
        where = next((where for where, card in free.items() if wanted(card)), None)
        return None if where is None else free.pop(where)

    result: list[Card | None] = []
    for info in cuda:
        key, bus = uuid_bytes(info.uuid), bus_key(info.bus_id)
        card = None if key is None else take(lambda card, key=key: uuid_bytes(card.uuid) == key)  # type: ignore[misc]
        if card is None and bus is not None:
            card = take(
                lambda card, key=key, bus=bus: (  # type: ignore[misc]
                    card.mig_instance is None and bus_key(card.bus_id) == bus and (key is None or card.uuid is None)
                )
            )
        result.append(card)
    left = [index for index, card in enumerate(result) if card is None and uuid_bytes(cuda[index].uuid) is not None]
    unnamed = [card for card in free.values() if card.broken is not None and card.uuid is None]
    if len(left) == len(unnamed) == 1:
        result[left[0]] = unnamed[0]
    return list(zip(cuda, result, strict=True))


def _families(
    devices: Sequence[DeviceInfo], cards: Mapping[int, str], place: Mapping[tuple[int, int | None], DeviceInfo]
) -> list[DeviceInfo]:
    """The devices with every MIG instance behind its card. `cards`: NVML index -> id of the card itself."""
    children: dict[str, list[DeviceInfo]] = {}
    parents: dict[str, str] = {}
    for (index, part), info in sorted(place.items(), key=lambda entry: (entry[0][0], entry[0][1] or 0)):
        if part is not None and index in cards:
            parents[info.id] = cards[index]
            children.setdefault(cards[index], []).append(replace(info, parent=cards[index]))
    by_id = {info.id: info for info in devices}
    listed: dict[str, DeviceInfo] = {}
    for info in devices:
        top = by_id[parents.get(info.id, info.id)]
        for item in (top, *children.get(top.id, ())):
            listed.setdefault(item.id, item)
    return list(listed.values())


def _with_drm(
    torch_side: list[DeviceInfo], drm: Sequence[DrmCard], has_reported: bool
) -> tuple[list[DeviceInfo], list[DeviceInfo]]:
    """torch's devices with what the kernel knows of AMD and Intel cards, and the cards that torch does not use.

    Joined by PCI address; where torch tells none, the only device of a kind is the only card of its maker.
    """
    devices, alone = list(torch_side), []
    for card in drm:
        kind = {"AMD": "cuda", "Intel": "xpu"}.get(card.vendor)
        index = next(
            (
                index
                for index, info in enumerate(devices)
                if info.bus_id and bus_key(info.bus_id) == bus_key(card.bus_id)
            ),
            None,
        )
        if index is None and sum(other.vendor == card.vendor for other in drm) == 1:
            unknown = [
                index
                for index, info in enumerate(devices)
                if info.kind == kind and info.bus_id is None and info.nvml_index is None
            ]
            index = unknown[0] if len(unknown) == 1 and (kind != "cuda" or devices[unknown[0]].uuid is None) else None
        if index is None:
            alone.append(_unused(card, has_reported))
        else:
            info = devices[index]
            total = info.memory_total_bytes if info.memory_total_bytes is not None else card.memory_total_bytes
            name = card.name if info.name.startswith(("ROCm device", "xpu device")) else info.name
            devices[index] = replace(info, bus_id=card.bus_id, name=name, memory_total_bytes=total)
    return devices, alone


def _unused(card: DrmCard, has_reported: bool) -> DeviceInfo:
    needs = {"AMD": "a build of torch for ROCm", "Intel": "a build of torch for XPU"}[card.vendor]
    reason = f"torch does not use it: {card.vendor}'s cards need {needs} and its driver" if has_reported else _NOT_YET
    return DeviceInfo(
        id=card.drm_id,
        kind="drm",
        name=card.name,
        bus_id=card.bus_id,
        usable=False,
        reason=reason,
        memory_total_bytes=card.memory_total_bytes,
        memory_shared=card.shared,
    )


def _ordinal(info: DeviceInfo) -> int:
    return info.cuda_ordinal if info.cuda_ordinal is not None else 1 << 30


def bus_key(bus_id: str | None) -> str | None:
    """NVML writes the PCI domain with eight digits, others with four."""
    if bus_id is None:
        return None
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"


def _no_torch_reason(
    torch_devices: Sequence[DeviceInfo] | None, problems: Sequence[Problem], cuda_visible_devices: str | None
) -> str:
    """Why a card that NVML sees is none of torch's devices."""
    if torch_devices is None:
        return _NOT_YET
    for problem in problems:
        if problem.device is None and problem.field == "cuda":
            return problem.reason
    if cuda_visible_devices is not None:
        return hidden_by(cuda_visible_devices)
    return "torch does not list this card"


def _unusable(card: Card, cards: Sequence[Card], reason: str) -> DeviceInfo:
    if card.broken is not None:
        reason = card.broken
    elif card.mig and any(other.mig_instance is not None and other.index == card.index for other in cards):
        reason = "in MIG mode: torch uses its instances, one for each process"
    elif card.mig:
        reason = "in MIG mode without an instance: create one with nvidia-smi mig, or switch the mode off"
    elif card.mig_instance is not None and reason != _NOT_YET:
        reason = f"a process gets one MIG instance: start the engine with {VARIABLE}={card.uuid} to use this one"
    return DeviceInfo(id=_listed_id(card), kind="nvml", name=card.name, usable=False, reason=reason)


def _with_card(info: DeviceInfo, card: Card) -> DeviceInfo:
    """What torch or the CUDA driver says, completed and where both know it replaced by NVML's figures.

    NVML's total is what its `used` is part of; CUDA's is a little smaller. A card that is lost is no use to torch
    either.
    """
    known = {field: value for field in _OF_CARD if (value := getattr(card, field)) is not None}
    return replace(
        info,
        usable=info.usable and card.broken is None,
        reason=card.broken if card.broken is not None else info.reason,
        name=card.name if card.mig_instance is None else info.name,
        nvml_index=card.index,
        memory_shared=card.memory_shared or info.memory_shared,
        **known,
    )


_OF_CARD = (
    "uuid",
    "bus_id",
    "mig_profile",
    "gpu_instance_id",
    "memory_total_bytes",
    "memory_used_bytes",
    "compute_capability",
    "driver_version",
    "cuda_version",
)
"""Fields of a device that NVML knows better."""


def _with_datasheet(info: DeviceInfo, datasheets: Mapping[str, Profile]) -> DeviceInfo:
    """A MIG instance is a part of its card, and the card's figures are not its own."""
    if info.kind not in ("cuda", "nvml") or (info.uuid or "").upper().startswith("MIG-"):
        return info
    sheet = sheet_of(info.name, datasheets)
    if sheet is None:
        return info
    return replace(info, datasheet_tflops=dict(sheet.tflops), memory_gb_s=sheet.memory_gb_s)


def sheet_of(name: str, datasheets: Mapping[str, Profile]) -> Profile | None:
    """The figures of the card that its driver calls `name`; None: it is none of them."""
    wanted = _model(name)
    return next((sheet for known, sheet in datasheets.items() if _model(known) == wanted), None)


def _model(name: str) -> str:
    """Drivers write `NVIDIA GeForce RTX 4090`, older ones `GeForce RTX 4090`."""
    return " ".join(name.lower().split()).removeprefix("nvidia ")


def _mixed_models(cards: Sequence[Card], cuda_device_order: str | None) -> list[Problem]:
    models = sorted({card.name for card in cards if card.mig_instance is None and card.broken is None and card.named})
    if len(models) < 2 or cuda_device_order is not None:
        return []
    reason = (
        f"different cards ({', '.join(models)}) and CUDA_DEVICE_ORDER is not set: CUDA counts the fastest card first, "
        "nvidia-smi by bus; set CUDA_DEVICE_ORDER=PCI_BUS_ID for one order"
    )
    return [Problem(reason, field="cuda_ordinal")]


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
