"""A real card is calibrated: every factor is found, within limits that no working card leaves, and values are right.
Needs a GPU and CUDA torch."""

from __future__ import annotations

import pytest
import torch
from fakes.calibrations import calibrated

from devexplorer.core.base import BadInput
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.planner.calibrate.kind import combined

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda is not available here"),
]


def test_every_factor_of_a_card_is_found() -> None:
    try:
        result = calibrated(DeviceRegistry([TorchBackend()]), "cuda:0")
    except BadInput as lacking:  # a card without a profile, or without room
        pytest.skip(str(lacking))
    assert (result.verified, result.simulated, result.stopped) == (True, False, False)
    found = {factor.name: factor.value for factor in combined(result.rows)}
    assert {"memory", "kernel", "host", "vector", "link"} <= set(found)
    assert all(0.1 < value < 10 for value in found.values()), found
    for row in result.rows:
        assert row.measured is None or row.noise is not None
