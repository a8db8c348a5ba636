"""The pytest fixture `virtual`: a machine with two virtual Tesla T4, removed afterwards. The device itself stays
registered in torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.virtual.backend import install, unavailable
from devexplorer.core.virtual.device.machine import VirtualMachine


@pytest.fixture
def virtual() -> Iterator[VirtualMachine]:
    reason = unavailable()
    if reason is not None:
        pytest.skip(reason)
    machine = install()
    machine.reset()
    machine.add(parse_virtual("2x Tesla T4"))
    yield machine
    machine.reset()
