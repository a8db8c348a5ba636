"""Processes on a card: lists joined with system data, implausible numbers, containers, utilization."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest
from fakes.nvml import MIB, FakeCard, FakeNvml, NVMLLibraryMismatchError, opened

from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.devices.nvml_card import (
    COMMAND_CHARACTERS,
    ProcessFacts,
    ProcessLoad,
    process_facts,
    process_load,
)
from devexplorer.core.records import ProcessUse

A = "GPU-aaaaaaaa-0000-0000-0000-000000000001"


def processes(fake: FakeNvml, **options: bool) -> tuple[ProcessUse, ...] | None:
    nvml, (card,) = opened(fake, **options)
    return nvml.read_slow(card).processes


def test_a_process_comes_with_everything_that_is_known_of_it() -> None:
    card = FakeCard(
        uuid=A, compute=[(11, 5 * MIB)], busy=[(11, 1_000_000, 40), (11, 2_000_000, 60), (12, 2_000_000, 90)]
    )
    assert processes(FakeNvml(card)) == (
        ProcessUse(
            11,
            "program-11",
            5 * MIB,
            user="ada",
            command="program-11 --run",
            kind="compute",
            utilization_percent=50.0,
            memory_utilization_percent=0.0,
        ),
    )


def test_old_process_getters_fall_back_to_the_second_version() -> None:
    fake = FakeNvml(FakeCard(uuid=A, compute=[(7, MIB)]))
    fake.fail("nvmlDeviceGetComputeRunningProcesses", NVMLLibraryMismatchError("Unversioned function called"))
    nvml, (card,) = opened(fake)
    (process,) = nvml.read_slow(card).processes or ()
    assert (process.pid, process.memory_bytes) == (7, MIB)
    assert nvml.problems == ()


def test_processes_that_no_getter_tells_are_none_not_empty() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    for kind in ("Compute", "Graphics"):
        fake.fail(f"nvmlDeviceGet{kind}RunningProcesses", NVMLLibraryMismatchError())
        fake.fail(f"nvmlDeviceGet{kind}RunningProcesses_v2", FakeNvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    nvml, (card,) = opened(fake)
    assert nvml.read_slow(card).processes is None
    (problem,) = nvml.problems
    assert problem.field == "processes"
    assert "too old" in problem.reason


def test_an_empty_process_list_means_nothing_in_a_container() -> None:
    fake = FakeNvml(FakeCard(uuid=A))
    nvml, (card,) = opened(fake, container=True)
    assert nvml.read_slow(card).processes is None
    assert "not visible from here" in nvml.problems[0].reason
    assert processes(fake) == ()


def test_in_a_container_numbers_get_no_names() -> None:
    (process,) = processes(FakeNvml(FakeCard(uuid=A, compute=[(7, MIB)])), container=True) or ()
    assert (process.name, process.user, process.command, process.memory_bytes) == (None, None, None, MIB)


def test_a_process_in_both_lists_counts_once_and_impossible_ones_not_at_all() -> None:
    compute = [(7, None), (0, MIB), (2**31, MIB), (2**32 - 1, MIB), (9, 2**60)]
    found = processes(FakeNvml(FakeCard(uuid=A, compute=compute, graphics=[(7, MIB), (8, None)])))
    assert found is not None
    assert [(process.pid, process.kind, process.memory_bytes) for process in found] == [
        (7, "compute, graphics", MIB),
        (8, "graphics", None),
        (9, "compute", None),
    ]


def test_memory_that_stands_for_not_available_is_not_known_even_on_a_card_without_a_size() -> None:
    (process,) = processes(FakeNvml(FakeCard(uuid=A, total=0, compute=[(7, 2**64 - 1)]))) or ()
    assert process.memory_bytes is None


def test_utilization_is_of_the_time_since_the_reading_before() -> None:
    card = FakeCard(uuid=A, compute=[(7, MIB)], busy=[(7, 1_000_000, 80)])
    nvml, (known,) = opened(FakeNvml(card))

    def share() -> float | None:
        (process,) = nvml.read_slow(known).processes or ()
        return process.utilization_percent

    assert share() == 80.0
    assert share() is None, "no new sample is not 0 per cent"
    card.busy.append((7, 3_000_000, 20))
    assert share() == 20.0
    card.busy.append((7, 4_000_000, 2**32 - 1))
    assert share() is None
    assert nvml.problems == ()


def test_what_a_process_uses_of_the_machine() -> None:
    """CPU between two readings; nothing of one that is gone, or whose number is another process's by now."""
    used = iter((ProcessLoad(10.0, 3 * MIB, 60.0), ProcessLoad(13.0, 4 * MIB, 62.0), ProcessLoad(1.0), ProcessLoad()))
    times = itertools.count(0.0, 0.5)
    last = 0.0

    def now() -> float:
        nonlocal last
        last = next(times)
        return last

    fake = FakeNvml(FakeCard(uuid=A, compute=[(7, MIB)]))
    moments: list[float] = []

    def load(_pid: int) -> ProcessLoad:
        moments.append(last)
        return next(used)

    nvml, (card,) = opened(fake, process_load=load, clock=now)
    rows = [(nvml.read_slow(card).processes or ())[0] for _ in range(4)]
    share = 100 * 3.0 / (moments[1] - moments[0])
    assert [(row.cpu_percent, row.host_memory_bytes, row.running_s) for row in rows] == [
        (None, 3 * MIB, 60.0), (pytest.approx(share), 4 * MIB, 62.0), (None, None, None), (None, None, None),
    ]  # fmt: skip
    hidden, (card,) = opened(fake, container=True, process_load=load)
    (row,) = hidden.read_slow(card).processes or ()
    assert (row.cpu_percent, row.host_memory_bytes, row.running_s) == (None, None, None), "its number is the host's"


def test_the_system_tells_what_this_process_uses(tmp_path: Path) -> None:
    own = process_load(os.getpid())
    assert own.cpu_s is not None
    assert 0 < own.cpu_s <= sum(os.times()[:2]) + 0.1
    assert own.memory_bytes is not None
    assert own.memory_bytes > 10 * MIB
    assert own.running_s is not None
    assert 0 <= own.running_s < 86400
    assert process_load(2**31 - 1) == ProcessLoad()
    (tmp_path / "7").mkdir()
    (tmp_path / "7/stat").write_bytes(b"7 (a) b (c) S no numbers")
    assert process_load(7, tmp_path) == ProcessLoad()


def test_a_process_is_looked_up_once_while_it_stays() -> None:
    asked = []

    def facts(pid: int) -> ProcessFacts:
        asked.append(pid)
        return ProcessFacts(f"program-{pid}")

    card = FakeCard(uuid=A, compute=[(7, MIB)])
    nvml = Nvml(FakeNvml(card), process_facts=facts, hidden_processes=lambda: False, driver_cards=frozenset)
    nvml.start()
    (known,) = nvml.cards()
    nvml.read_slow(known)
    nvml.read_slow(known)
    card.compute.clear()
    nvml.read_slow(known)
    card.compute.append((7, MIB))
    nvml.read_slow(known)
    assert asked == [7, 7], "a number that comes back may be another process"


def test_the_system_knows_this_process() -> None:
    facts = process_facts(os.getpid())
    process = psutil.Process()
    assert facts.name == process.name()
    assert facts.user == process.username()
    assert facts.command is not None
    assert facts.command.startswith(sys.argv[0][:0] + process.cmdline()[0])


def a_process(proc: Path, comm: bytes, command: bytes | None) -> Path:
    """Number 7, as Linux shows it; without a command line that may not be read."""
    (proc / "7").mkdir(parents=True)
    (proc / "7/comm").write_bytes(comm + b"\n")
    if command is not None:
        (proc / "7/cmdline").write_bytes(command)
    return proc


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")


@linux
def test_a_long_command_line_is_cut_and_a_missing_process_is_no_error(tmp_path: Path) -> None:
    command = process_facts(7, a_process(tmp_path, b"python", b"python\0" + b"x" * 1000)).command
    assert command is not None
    assert len(command) == COMMAND_CHARACTERS
    assert command.endswith("…")
    assert process_facts(2**31 - 1) == ProcessFacts()


@linux
def test_what_may_not_be_asked_of_a_process_hides_nothing_else(tmp_path: Path) -> None:
    facts = process_facts(7, a_process(tmp_path, b"python", None))
    assert facts.command is None
    assert facts.name == "python"


@linux
def test_a_name_that_the_system_cut_is_completed_from_the_command_line(tmp_path: Path) -> None:
    facts = process_facts(
        7, a_process(tmp_path, b"tensorboard-dat", b"/opt/bin/tensorboard-data-server\0--logdir\0x\0")
    )
    assert facts.name == "tensorboard-data-server"
    assert facts.command == "/opt/bin/tensorboard-data-server --logdir x"


@pytest.mark.skipif(os.name != "posix", reason="elsewhere command lines are Unicode")
def test_a_command_line_that_is_no_utf_8_can_be_sent_and_written() -> None:
    with subprocess.Popen([b"caf\xe9", b"30"], executable=b"/bin/sleep") as process:
        try:
            until = time.monotonic() + 10
            while (command := process_facts(process.pid).command) is None:  # for a moment a new program has none
                assert time.monotonic() < until
        finally:
            process.terminate()
    assert command == "caf\N{REPLACEMENT CHARACTER} 30"
    assert msgspec.json.encode(ProcessFacts(command=command))
