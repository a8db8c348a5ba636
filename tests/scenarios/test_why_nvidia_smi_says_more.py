"""Why nvidia-smi reports hundreds of MiB for a tensor of 4 MiB: every byte of the difference has a name, and some can
be freed.

The complaints are pytorch/pytorch issues 37250, 40989, 20532 and 60150.
"""

from __future__ import annotations

import os

import pytest
from places import Place

from devexplorer.core.devices.catalog import Catalog, uuid_bytes
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.engine.engine import AllocatorSampler
from devexplorer.core.records import DeviceSample, Event, NewTensor, Remove
from devexplorer.core.session.state import Device, State
from devexplorer.core.telemetry.memory_breakdown import memory_views, why_they_differ
from devexplorer.core.virtual.device.machine import CONTEXT_BYTES

MIB = 1 << 20
FOUR_MIB = NewTensor(name="x", shape=(1024, 1024), dtype="float32")


class Watching:
    """The window's state of the place's first device."""

    def __init__(self, place: Place) -> None:
        self.place, self.state = place, State()
        self.state.set_catalog(Catalog(place.registry.infos(), ()))
        self._sampler = AllocatorSampler(self._take, place.registry, place.workspace, lambda: 1.0)
        self._nvml = Nvml() if place.kind == "cuda" else None

    def _take(self, event: Event) -> None:
        self.state.apply(event)

    def look(self) -> Device:
        self._sampler.read()
        if self._nvml is not None:
            self._ask_the_driver(self._nvml)
            self._sampler.read()
        return self.state.devices[self.place.first]

    def _ask_the_driver(self, nvml: Nvml) -> None:
        if not nvml.start():
            pytest.skip("NVML does not answer here")
        info = self.place.registry.info(self.place.first)
        card = next(
            card for card in nvml.cards() if card.uuid and info.uuid and uuid_bytes(card.uuid) == uuid_bytes(info.uuid)
        )
        sample = nvml.read(card, device=info.id, time_unix_s=1.0, slow=nvml.read_slow(card))
        device = self.state.devices[info.id]
        device.context.see_sample(sample, os.getpid())
        self.state.apply(sample)


def said(device: Device) -> str:
    return why_they_differ(device.info, device.parts, device.used_bytes)


def test_every_byte_between_nvidia_smi_and_the_tensor_has_a_name(place: Place) -> None:
    watching = Watching(place)
    if place.kind == "cpu":
        place.do(FOUR_MIB)
        watching.state.apply(
            DeviceSample(device="cpu", time_unix_s=1.0, memory_used_bytes=MIB, memory_total_bytes=2 * MIB)
        )
        assert "no context and no caching allocator" in said(watching.look())
        return
    place.do(NewTensor(name="x", shape=(1024, 1024), dtype="float32", device=place.first))
    device = watching.look()
    parts = device.parts
    assert parts.workspace == 4 * MIB
    assert [(use.name, use.bytes) for use in device.allocator.objects] == [("x", 4 * MIB)]  # type: ignore[union-attr]
    views = memory_views(device.info, device.used_bytes, device.engine_bytes, device.allocator)
    assert [view.bytes for view in views if view.bytes is not None] == sorted(
        (view.bytes or 0 for view in views if view.bytes is not None), reverse=True
    )
    assert (device.used_bytes or 0) > 10 * 4 * MIB
    assert "4.00 MiB" in said(device)
    assert "freed when its process ends" in said(device) or parts.context is None
    if place.kind == "vgpu":
        assert (parts.context, parts.cached, parts.other_allocated, parts.other_processes) == (
            CONTEXT_BYTES,
            16 * MIB,
            0,
            0,
        )
        assert sum(part or 0 for part in parts) == device.total_bytes
    else:
        assert abs((parts.used or 0) - (device.used_bytes or 0)) <= 4 * MIB, (
            "beyond what may happen between two readings"
        )


def test_a_tensor_that_is_gone_leaves_cached_memory_that_can_be_released_and_a_context_that_cannot(
    place: Place,
) -> None:
    if place.kind == "cpu":
        return
    watching = Watching(place)
    place.do(NewTensor(name="x", shape=(64, 1024, 1024), dtype="float32", device=place.first))
    place.do(Remove(names=("x",)))
    assert place.allocated(place.first) == 0
    before = watching.look().parts
    assert before.workspace == 0
    assert (before.cached or 0) >= 256 * MIB
    place.registry.backend(place.first).empty_cache(place.first)
    device = watching.look()
    assert device.parts.cached == 0
    assert device.parts.context == before.context, "only the end of the process gives that back"
    assert (device.used_bytes or 0) > 0
