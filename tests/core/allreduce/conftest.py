"""What tests of all-reduces share."""

from __future__ import annotations

from pathlib import Path

import fakes
import pytest

from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.torch_devices import TorchBackend


@pytest.fixture
def registry() -> DeviceRegistry:
    """The devices of this machine; files about virtual GPUs have one of their own."""
    return DeviceRegistry([TorchBackend()])


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of a rank that has the faults that its environment names."""
    monkeypatch.setenv("PYTHONPATH", str(Path(fakes.__file__ or "").parents[1]))
    return "fakes.faulty_rank"
