"""Listing real CUDA devices: no context, and the same cards under both numbers. Needs a GPU and CUDA torch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from devexplorer.core.devices.catalog import join, uuid_bytes
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.devices.torch_devices import TorchBackend

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda is not available here"),
]


@pytest.fixture
def nvml() -> Iterator[Nvml]:
    door = Nvml()
    if not door.start():
        pytest.skip(door.problems[0].reason)
    yield door
    door.close()


LISTING = """
import os, torch
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.devices.torch_devices import TorchBackend
backend = TorchBackend()
devices = [info for info in backend.devices() if info.kind == "cuda"]
assert devices, backend.problems()
assert not torch.cuda.is_initialized()
assert not any(backend._driver.has_context(info.cuda_ordinal) for info in devices)
nvml = Nvml(hidden_processes=lambda: False)
nvml.start()
for card in nvml.cards():
    assert os.getpid() not in [process.pid for process in nvml.read_slow(card).processes or ()]
nvml.close()
torch.ones(1, device=devices[0].id)
assert backend._driver.has_context(devices[0].cuda_ordinal)
print("listed", len(devices))
"""
"""In a subprocess: another test may have created a context in this one. The last assertion shows that the check can
fail."""


def test_listing_creates_no_context() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LISTING], capture_output=True, text=True, timeout=120, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "listed"


def test_the_driver_s_uuids_are_those_of_torch_s_ordinals() -> None:
    devices = [info for info in TorchBackend().devices() if info.kind == "cuda"]
    assert len(devices) == torch.cuda.device_count()
    for info in devices:
        assert info.cuda_ordinal is not None
        properties = torch.cuda.get_device_properties(info.cuda_ordinal)
        assert uuid_bytes(info.uuid) == uuid_bytes(str(properties.uuid))
        assert info.compute_capability == f"{properties.major}.{properties.minor}"
        assert info.sm_count == properties.multi_processor_count
        assert info.memory_total_bytes == properties.total_memory


def test_the_join_with_nvml_gives_both_numbers_and_the_larger_memory(nvml: Nvml) -> None:
    cards = nvml.cards()
    backend = TorchBackend()
    catalog = join(CpuReader().info(), cards, backend.devices(), (), [*backend.problems(), *nvml.problems])
    joined = [info for info in catalog.devices if info.kind == "cuda"]
    assert len(joined) == torch.cuda.device_count()
    for info in joined:
        assert info.nvml_index is not None
        assert info.driver_version
        assert (info.memory_total_bytes or 0) >= torch.cuda.get_device_properties(
            info.cuda_ordinal or 0
        ).total_memory * 0.99


def test_a_reading_shows_an_allocation(nvml: Nvml) -> None:
    backend = TorchBackend()
    device = next(info for info in backend.devices() if info.kind == "cuda" and info.usable)
    torch.ones(1, device=device.id)
    backend.empty_cache(device.id)  # what other tests have freed would serve the block
    card = next(card for card in nvml.cards() if uuid_bytes(card.uuid) == uuid_bytes(device.uuid))
    before = nvml.read(card, device=device.id, time_unix_s=0.0)
    block = torch.empty(256 << 20, dtype=torch.uint8, device=device.id)
    after = nvml.read(card, device=device.id, time_unix_s=0.0)
    assert before.memory_used_bytes is not None
    assert after.memory_used_bytes is not None
    assert after.memory_used_bytes - before.memory_used_bytes >= block.numel() // 2, "other processes may free some"
    sample = backend.allocator_sample(device.id, 0.0)
    assert sample is not None
    assert sample.allocated_bytes >= block.numel()
    del block
    backend.synchronize(device.id)
    backend.empty_cache(device.id)
