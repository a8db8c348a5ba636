"""Joins what NVML, the engine's torch and the CPU say into one list of devices. Pure functions, any thread; no torch.

A card has two numbers: NVML's index and torch's CUDA ordinal. They differ as soon as CUDA_VISIBLE_DEVICES is set or
models are mixed, so the two sides are joined by UUID, compared as 16 bytes (spellings differ: `GPU-`, `MIG-`, none).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from devexplorer.core.records.devices import DeviceInfo, Problem

if TYPE_CHECKING:
    from devexplorer.core.devices.nvml import Card

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


class Datasheet(NamedTuple):
    """What the datasheet of a card model promises."""

    tflops: Mapping[str, float]
    """Dense TFLOP/s per dtype as torch writes them, and `tf32`."""
    memory_gb_s: float | None
    """Decimal GB/s."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every device in the order in which they are shown, and what could not be found out."""

    devices: tuple[DeviceInfo, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def names(self) -> dict[str, str]:
        """UUID -> device id of everything that NVML can watch: what the sampler calls its cards."""
        return {info.uuid: info.id for info in self.devices if info.uuid is not None and info.nvml_index is not None}


def join(
    cpu: DeviceInfo,
    cards: Sequence[Card] = (),
    torch_devices: Sequence[DeviceInfo] | None = None,
    virtual: Sequence[DeviceInfo] = (),
    problems: Sequence[Problem] = (),
    *,
    datasheets: Mapping[str, Datasheet] | None = None,
    cuda_visible_devices: str | None = None,
    cuda_device_order: str | None = None,
) -> Catalog:
    """One list: the CPU, cuda by ordinal, other torch devices, `nvml:N` for cards that torch cannot use, virtual ones.

    `torch_devices` is what the engine lists (its CPU replaces `cpu`, its virtual devices go last); None: it has not
    reported yet. `problems` come from both sides; those about `nvml:N` are renamed to the device that the card became.
    The two variables are those of the engine's environment. `datasheets`: card name -> figures.
    """
    engine = list(torch_devices or ())
    cpu = next((info for info in engine if info.id == "cpu"), cpu)
    virtual = [*(info for info in engine if info.kind == "virtual"), *virtual]
    others = [info for info in engine if info.kind not in ("cpu", "cuda", "virtual")]
    no_torch = _no_torch_reason(torch_devices, problems, cuda_visible_devices)

    by_uuid = {key: card for card in cards if (key := uuid_bytes(card.uuid)) is not None}
    by_bus = {_bus_key(card.bus_id): card for card in cards if card.bus_id is not None and card.mig_instance is None}
    cuda: list[DeviceInfo] = []
    unusable: list[DeviceInfo] = []
    names: dict[str, str] = {}
    taken: set[str] = set()
    for info in sorted((info for info in engine if info.kind == "cuda"), key=_ordinal):
        key = uuid_bytes(info.uuid)
        card = by_uuid.get(key) if key is not None else None
        if card is None and (neighbour := by_bus.get(_bus_key(info.bus_id))) is not None:
            # Only where one side has no UUID: a MIG instance has its card's bus id, too.
            card = neighbour if key is None or neighbour.uuid is None else None
        if card is None:
            cuda.append(info)
            continue
        taken.add(card.key)
        joined = _with_card(info, card)
        if not info.usable:
            joined = msgspec.structs.replace(joined, id=card.nvml_id, kind="nvml")
            unusable.append(joined)
        else:
            cuda.append(joined)
        if card.mig_instance is None:
            names[card.nvml_id] = joined.id
    for card in cards:
        if card.mig_instance is None and card.key not in taken:
            unusable.append(_with_card(_unusable(card, cards, no_torch), card))
    unusable.sort(key=lambda info: info.nvml_index or 0)

    devices = [_with_datasheet(info, datasheets or {}) for info in (cpu, *cuda, *others, *unusable)]
    renamed = [msgspec.structs.replace(problem, device=names.get(problem.device or "", problem.device)) for problem in problems]
    mixed = _mixed_models(cards, cuda_device_order)
    return Catalog((*devices, *virtual), tuple(dict.fromkeys([*renamed, *mixed])))


def _ordinal(info: DeviceInfo) -> int:
    return info.cuda_ordinal if info.cuda_ordinal is not None else 1 << 30


def _bus_key(bus_id: str | None) -> str | None:
    """NVML writes the PCI domain with eight digits, others with four."""
    if bus_id is None:
        return None
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"


def _no_torch_reason(torch_devices: Sequence[DeviceInfo] | None, problems: Sequence[Problem], cuda_visible_devices: str | None) -> str:
    """Why a card that NVML sees is none of torch's devices."""
    if torch_devices is None:
        return "the engine has not reported yet"
    for problem in problems:
        if problem.device is None and problem.field == "cuda":
            return problem.reason
    if cuda_visible_devices is not None:
        return f"hidden from the engine by CUDA_VISIBLE_DEVICES={cuda_visible_devices}"
    return "torch does not list this card"


def _unusable(card: Card, cards: Sequence[Card], reason: str) -> DeviceInfo:
    if card.broken is not None:
        reason = card.broken
    elif card.mig and any(other.mig_instance is not None and other.index == card.index for other in cards):
        reason = "in MIG mode: torch uses its instances, one for each process"
    elif card.mig:
        reason = "in MIG mode without an instance: create one with nvidia-smi mig, or switch the mode off"
    return DeviceInfo(id=card.nvml_id, kind="nvml", name=card.name, usable=False, reason=reason)


def _with_card(info: DeviceInfo, card: Card) -> DeviceInfo:
    """What torch or the CUDA driver says, completed and where both know it replaced by NVML's figures.

    NVML's total is what its `used` is part of; CUDA's is a little smaller.
    """
    return msgspec.structs.replace(
        info,
        name=card.name if card.mig_instance is None else info.name,
        uuid=card.uuid or info.uuid,
        bus_id=card.bus_id or info.bus_id,
        nvml_index=card.index,
        memory_total_bytes=card.memory_total_bytes if card.memory_total_bytes is not None else info.memory_total_bytes,
        memory_used_bytes=card.memory_used_bytes if card.memory_used_bytes is not None else info.memory_used_bytes,
        memory_shared=card.memory_shared or info.memory_shared,
        compute_capability=card.compute_capability or info.compute_capability,
        driver_version=card.driver_version or info.driver_version,
        cuda_version=card.cuda_version or info.cuda_version,
    )


def _with_datasheet(info: DeviceInfo, datasheets: Mapping[str, Datasheet]) -> DeviceInfo:
    """A MIG instance is a part of its card, and the card's figures are not its own."""
    if info.kind not in ("cuda", "nvml") or (info.uuid or "").upper().startswith("MIG-"):
        return info
    wanted = _model(info.name)
    sheet = next((sheet for name, sheet in datasheets.items() if _model(name) == wanted), None)
    if sheet is None:
        return info
    return msgspec.structs.replace(info, datasheet_tflops=dict(sheet.tflops), memory_gb_s=sheet.memory_gb_s)


def _model(name: str) -> str:
    """Drivers write `NVIDIA GeForce RTX 4090`, older ones `GeForce RTX 4090`."""
    return " ".join(name.lower().split()).removeprefix("nvidia ")


def _mixed_models(cards: Sequence[Card], cuda_device_order: str | None) -> list[Problem]:
    models = sorted({card.name for card in cards if card.mig_instance is None and card.broken is None})
    if len(models) < 2 or cuda_device_order is not None:
        return []
    reason = (
        f"the cards differ ({', '.join(models)}) and CUDA_DEVICE_ORDER is not set: CUDA counts the fastest card first, "
        "nvidia-smi by bus; set CUDA_DEVICE_ORDER=PCI_BUS_ID for one order"
    )
    return [Problem(reason, field="cuda_ordinal")]
