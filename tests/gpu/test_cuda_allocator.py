"""torch's CUDA allocator on a real card: the largest free block, recording, a snapshot that opens again."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.memory import snapshot_file

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine or this torch has no CUDA device"),
]
MIB = 1 << 20


def test_what_is_recorded_and_cached_is_in_the_snapshot_and_in_the_readings(tmp_path: Path) -> None:
    backend = TorchBackend()
    torch.cuda.init()
    assert "cuda:0" in backend.record(True)
    kept = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda:0")
    gone = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda:0")
    del gone
    try:
        sample = backend.allocator_sample("cuda:0", 0.0)
        assert sample is not None
        assert sample.largest_free_block_bytes is not None
        assert 40 * MIB <= sample.largest_free_block_bytes <= sample.reserved_bytes - sample.allocated_bytes
        path = str(tmp_path / "card.pickle")
        snapshot_file.save(backend.snapshot("cuda:0"), path)
        found = snapshot_file.load(path, "card.pickle")
        assert not found.simulated
        assert sum(segment.bytes for segment in found.segments) == sample.reserved_bytes
        assert any(line.startswith("test_cuda_allocator.py:") for stack in found.stacks for line in stack.frames)
        assert kept.numel() == 3 * MIB
    finally:
        backend.record(False)
        backend.empty_cache("cuda:0")
