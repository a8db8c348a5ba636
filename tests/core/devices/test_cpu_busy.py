"""CPU load: Linux's counters and their limits."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from devexplorer.core.devices import cpu_busy
from devexplorer.core.devices.cpu_busy import CpuBusy

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc/stat is Linux's")


def stat(path: Path, *numbers: int) -> Path:
    path.write_text(f"cpu  {' '.join(map(str, numbers))}\ncpu0 1 1 1\n", encoding="ascii")
    return path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds; the process itself spends none."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    return now


def test_busy_is_all_that_is_neither_idle_nor_waiting(tmp_path: Path, clock: list[float]) -> None:
    path = stat(tmp_path / "stat", 100, 0, 0, 1000, 0, 0, 0, 0)
    busy = CpuBusy(path)
    clock[0] += 1.0
    stat(path, 120, 0, 10, 1060, 10, 0, 0, 0)
    assert busy() == pytest.approx(30.0)
    clock[0] += 1.0
    assert busy() is None, "nothing was counted"
    clock[0] += 0.01
    stat(path, 220, 0, 10, 1060, 10, 0, 0, 0)
    assert busy() is None, "too short for the system's clock"


def test_a_first_reading_leaves_the_start_of_this_process_out(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_busy.os, "cpu_count", lambda: 2)
    path = stat(tmp_path / "stat", 100, 0, 0, 1000, 0, 0, 0, 0)
    busy = CpuBusy(path)
    clock[0] += 0.1
    monkeypatch.setattr(time, "process_time", lambda: 0.08)  # 8 of the 20 ticks that two cores have in 0.1 s
    stat(path, 113, 0, 0, 1007, 0, 0, 0, 0)
    assert busy() == pytest.approx(25.0)
    clock[0] += 0.1
    monkeypatch.setattr(time, "process_time", lambda: 0.18)
    stat(path, 123, 0, 0, 1017, 0, 0, 0, 0)
    assert busy() == pytest.approx(50.0), "later it counts like everybody else"


def test_a_system_without_the_file_is_asked_another_way(tmp_path: Path) -> None:
    busy = CpuBusy(tmp_path / "none")
    until = time.monotonic() + 10
    while (found := busy()) is None:
        assert time.monotonic() < until
    assert 0 <= found <= 100
