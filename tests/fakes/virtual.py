"""The pytest fixture `virtual`: a machine with two virtual Tesla T4, removed afterwards. The device itself stays
registered in torch. Where torch is too old for virtual GPUs, a test that fails for want of them is skipped."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.virtual.backend import install, unavailable
from devexplorer.core.virtual.device.machine import VirtualMachine

UNAVAILABLE = unavailable()
"""Before any test has installed them."""
needs_virtual_gpus = pytest.mark.skipif(UNAVAILABLE is not None, reason=str(UNAVAILABLE))
"""For a test that would wait for them, or cannot show the reason."""
_WORDS = (UNAVAILABLE or "").rpartition("; ")[2]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """See above: the failure, or what was printed before it, has to name the reason."""
    report = yield
    said = [report.longreprtext, *(text for _, text in report.sections)]
    if _WORDS and report.failed and any(_WORDS in text for text in said):
        path, line, _ = item.location
        report.outcome, report.longrepr = "skipped", (path, (line or 0) + 1, f"Skipped: {UNAVAILABLE}")
    return report


@pytest.fixture
def virtual() -> Iterator[VirtualMachine]:
    if UNAVAILABLE is not None:
        pytest.skip(UNAVAILABLE)
    machine = install()
    machine.reset()
    machine.add(parse_virtual("2x Tesla T4"))
    yield machine
    machine.reset()
