"""The CPU without torch: its name, and the memory available to this process."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from devexplorer.core.devices import cpu
from devexplorer.core.devices.cpu import CpuBusy, CpuFacts, CpuReader, MemoryLimit, cpu_facts

MIB = 1 << 20


def machine(folder: Path, cgroup: str = "", cpuinfo: str = "") -> tuple[Path, Path]:
    proc, groups = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True)
    groups.mkdir()
    (proc / "self" / "cgroup").write_text(cgroup)
    (proc / "cpuinfo").write_text(cpuinfo)
    return proc, groups


def put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_this_machine_has_a_name_cores_and_memory() -> None:
    facts = cpu_facts()
    assert facts.name.strip()
    assert facts.logical_cores >= 1
    assert 0 < facts.memory_total_bytes <= facts.physical_bytes == psutil.virtual_memory().total
    info = CpuReader(facts).info()
    assert (info.id, info.kind, info.usable) == ("cpu", "cpu", True)


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("processor : 0\nmodel name\t: AMD  EPYC 7B13\n", "AMD EPYC 7B13"),
        ("processor : 0\nHardware\t: BCM2835\n", "BCM2835"),
        ("model name\t:\n", None),
    ],
)
def test_the_brand_comes_from_cpuinfo(tmp_path: Path, cpuinfo: str, name: str | None) -> None:
    found = cpu_facts(*machine(tmp_path, cpuinfo=cpuinfo)).name
    assert found == name if name is not None else found.strip()


def test_without_proc_the_architecture_is_the_name(tmp_path: Path) -> None:
    facts = cpu_facts(tmp_path / "none", tmp_path / "none")
    assert facts.name
    assert facts.limit is None
    assert facts.problems == ()


def test_the_lowest_limit_among_the_groups_around_counts(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, "0::/user/session\n")
    put(
        groups / "user",
        memory__max=f"{64 * MIB}\n",
        memory__current=f"{20 * MIB}",
        memory__stat=f"file 1\ninactive_file {4 * MIB}\n",
    )
    put(groups / "user" / "session", memory__max="max\n")
    facts = cpu_facts(proc, groups)
    assert facts.limit == MemoryLimit(64 * MIB, groups / "user", 2)
    assert facts.memory_total_bytes == 64 * MIB
    (problem,) = facts.problems
    assert "64.00 MiB" in problem.reason
    assert (problem.device, problem.field) == ("cpu", "memory_total_bytes")
    reader = CpuReader(facts)
    assert reader.used_bytes() == 16 * MIB, "page cache that can go at once is not used memory"
    assert reader.free_bytes() == 48 * MIB


def test_the_first_cgroup_interface_too_and_a_container_that_shows_the_host_s_path(tmp_path: Path) -> None:
    proc, groups = machine(tmp_path, "5:cpu:/\n4:memory:/docker/12ab\n0::/\n")
    usage = {"memory__usage_in_bytes": str(9 * MIB), "memory__stat": f"total_inactive_file {MIB}\n"}
    put(groups / "memory", memory__limit_in_bytes=f"{32 * MIB}\n", **usage)
    facts = cpu_facts(proc, groups)
    assert facts.limit == MemoryLimit(32 * MIB, groups / "memory", 1)
    assert CpuReader(facts).used_bytes() == 8 * MIB


@pytest.mark.parametrize("limit", ["max", str(2**63 - 4096), "", "-1"])
def test_a_limit_beyond_the_machine_or_none_is_no_limit(tmp_path: Path, limit: str) -> None:
    proc, groups = machine(tmp_path, "0::/\n")
    put(groups, memory__max=limit)
    assert cpu_facts(proc, groups).limit is None


def test_a_group_that_vanished_makes_used_memory_unknown(tmp_path: Path) -> None:
    reader = CpuReader(CpuFacts("x", 1, 64 * MIB, MemoryLimit(32 * MIB, tmp_path / "gone", 2)))
    assert reader.used_bytes() is None
    assert reader.read(1.0).memory_used_bytes is None


def test_a_reading_has_utilization_from_the_second_on() -> None:
    answers = iter([0.0, 37.5])
    reader = CpuReader(CpuFacts("x", 1, 64 * MIB, None), percent=lambda: next(answers))
    first, second = reader.read(1.0), reader.read(2.0)
    assert (first.device, first.time_unix_s, first.utilization_percent) == ("cpu", 1.0, None)
    assert (second.time_unix_s, second.utilization_percent) == (2.0, 37.5)
    assert second.memory_total_bytes == 64 * MIB


def test_used_and_available_memory_of_this_machine_are_within_its_total() -> None:
    reader = CpuReader()
    total = reader.facts.memory_total_bytes
    assert 0 < (reader.used_bytes() or 0) < total
    assert 0 < (reader.free_bytes() or 0) <= total
    assert reader.info(threads=3).threads == 3


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
    monkeypatch.setattr(cpu.os, "cpu_count", lambda: 2)
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
