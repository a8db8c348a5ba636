"""The conditions of a run: readings of its period, other processes, and the revision of a checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from fakes.look_records import CUDA, ENGINE

from devexplorer.core.benchmark import conditions as module
from devexplorer.core.benchmark.conditions import (
    MOST_KEPT,
    MOST_PROCESSES,
    ConditionsWatch,
    HostInfo,
    git_revision,
    here,
)
from devexplorer.core.records import Conditions, DeviceDetails, DeviceInfo, DeviceSample, ProcessUse

HERE = HostInfo("node7", "3.12.1", "0.1.0", "a" * 40, frozenset({4000}))


def sample(time_s: float, device: str = "cuda:0", **more: object) -> DeviceSample:
    return DeviceSample(device=device, time_unix_s=time_s, **more)  # type: ignore[arg-type]


def watch(**more: object) -> ConditionsWatch:
    return ConditionsWatch("cuda:0", started_unix_s=100.0, info=CUDA, engine=ENGINE, here=HERE, **more)  # type: ignore[arg-type]


def test_clocks_power_and_temperature_are_those_of_the_span_on_that_device() -> None:
    seen = watch()
    for second, clock in ((99.0, 300), (101.0, 1400), (101.2, 1410), (101.5, 1420), (110.0, 500)):
        seen.see(sample(second, sm_clock_mhz=clock, power_w=clock / 10, temperature_c=clock / 20))
        seen.see(sample(second, "cuda:1", sm_clock_mhz=9))
    found = seen.finish(102.0)
    assert found.sm_clock_mhz is not None
    assert (found.sm_clock_mhz.median, found.sm_clock_mhz.p20, found.sm_clock_mhz.p80) == (1410.0, 1404.0, 1416.0)
    assert found.power_w is not None
    assert found.power_w.median == 141.0
    assert found.temperature_c is not None
    assert found.temperature_c.median == 70.5
    assert found.memory_clock_mhz is None


def test_the_power_of_the_first_second_is_of_what_was_before() -> None:
    seen = watch()
    for second, power in ((100.5, 80.0), (100.9, 300.0), (101.0, 640.0), (101.5, 650.0)):
        seen.see(sample(second, power_w=power, power_instant_w=80.0))  # the instantaneous one is read every 2 s
    assert seen.finish(102.0).power_w == module.spread([640.0, 650.0])
    seen = watch()
    seen.see(sample(100.5, power_w=80.0, simulated=True))
    assert seen.finish(102.0).power_w == module.spread([80.0]), "a simulated one is of the moment"


def test_warm_up_does_not_count() -> None:
    seen = watch()
    seen.see(sample(100.5, sm_clock_mhz=300, throttle_reasons=("thermal slowdown",)))
    seen.begin(101.0)
    seen.see(sample(101.5, sm_clock_mhz=1400, throttle_reasons=("power cap", "idle")))
    seen.see(sample(101.6, sm_clock_mhz=1400, throttle_reasons=("power cap", "hardware slowdown")))
    found = seen.finish(102.0)
    assert found.started_unix_s == 101.0
    assert found.sm_clock_mhz is not None
    assert found.sm_clock_mhz.p20 == 1400.0
    assert found.throttle_reasons == ("power cap", "hardware slowdown"), "all that were seen, and idle is none"


def test_what_changes_seldom_counts_from_shortly_before() -> None:
    seen = watch()
    seen.see(
        sample(
            99.0,
            power_cap_w=150.0,
            processes=(ProcessUse(77, "python"), ProcessUse(1, "engine"), ProcessUse(4000, "window")),
        )
    )
    found = seen.finish(100.02)
    assert found.power_cap_w == 150.0
    assert found.other_processes == ("python (77)",), "neither the engine nor the window is another process"
    assert found.sm_clock_mhz is None, "no reading lies in so short a run"
    late = watch()
    late.see(sample(60.0, power_cap_w=150.0, processes=()))
    assert late.finish(101.0).power_cap_w is None
    after_warm_up = watch()
    after_warm_up.see(sample(100.5, processes=(ProcessUse(78),)))
    after_warm_up.begin(101.0)
    assert after_warm_up.finish(101.1).other_processes == ("unknown (78)",)


def test_nothing_known_stays_unknown() -> None:
    assert ConditionsWatch("cuda:0", started_unix_s=1.0).finish(2.0) == Conditions(
        started_unix_s=1.0, ended_unix_s=2.0, device="cuda:0"
    )
    seen = watch()
    seen.see(sample(101.0, processes=(), throttle_reasons=()))
    found = seen.finish(102.0)
    assert (found.other_processes, found.throttle_reasons) == ((), ()), "known to be none"


def test_versions_come_from_the_one_who_knows() -> None:
    details = DeviceDetails(device="cuda:0", time_unix_s=0.0, driver_version="570.1")
    found = watch(details=details).finish(102.0, torch_version="2.12.0")
    assert (found.driver_version, found.torch_version, found.python_version) == ("570.1", "2.12.0", "3.11")
    assert (found.host, found.device_name, found.devexplorer_version, found.git_revision) == (
        "node7",
        "NVIDIA A10",
        "0.1.0",
        "a" * 40,
    )
    assert found.threads is None
    on_cpu = ConditionsWatch("cpu", started_unix_s=1.0, engine=ENGINE, here=HERE)
    on_cpu.see(sample(1.5, "cpu", processes=(ProcessUse(5, "make"),)))
    ended = on_cpu.finish(2.0)
    assert (ended.threads, ended.other_processes) == (2, None)
    assert on_cpu.finish(2.0, threads=1).threads == 1


def test_a_virtual_gpu_is_marked() -> None:
    info = DeviceInfo(id="vgpu:0", kind="virtual", name="Tesla T4", simulated=True)
    assert ConditionsWatch("vgpu:0", started_unix_s=1.0, info=info).finish(2.0).simulated


def test_a_run_until_stopped_keeps_a_bounded_number_of_readings() -> None:
    seen = watch()
    for tick in range(4 * MOST_KEPT):
        seen.see(sample(100.0 + tick / 10, sm_clock_mhz=tick))
    found = seen.finish(1e9)
    assert len(seen._kept.kept) <= MOST_KEPT
    assert found.sm_clock_mhz is not None
    assert found.sm_clock_mhz.median == pytest.approx(2 * MOST_KEPT, rel=0.01), "evenly chosen from the whole run"


def test_a_crowd_is_shortened() -> None:
    seen = watch()
    seen.see(sample(101.0, processes=tuple(ProcessUse(100 + number, "worker") for number in range(50))))
    found = seen.finish(102.0).other_processes
    assert found is not None
    assert len(found) == MOST_PROCESSES + 1
    assert found[-1] == "and 30 more"


# --- the revision


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_the_revision_is_what_git_says(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    assert git_revision(checkout) == head
    git(checkout, "pack-refs", "--all")
    assert git_revision(checkout) == head, "packed"
    git(checkout, "worktree", "add", "-q", "-b", "side/way", "../tree")
    git(checkout.parent / "tree", "commit", "-q", "--allow-empty", "-m", "second")
    assert git_revision(checkout.parent / "tree") == git(checkout.parent / "tree", "rev-parse", "HEAD") != head
    git(checkout, "checkout", "-q", "--detach", "HEAD")
    assert git_revision(checkout) == head, "detached"


def test_no_checkout_has_no_revision(tmp_path: Path) -> None:
    assert git_revision(tmp_path) is None
    (tmp_path / ".git").mkdir()
    for head in (b"", b"nonsense", b"\xff\xfe", b"ref: refs/heads/gone", b"ref: ../../secret"):
        (tmp_path / ".git" / "HEAD").write_bytes(head)
        assert git_revision(tmp_path) is None


def test_here_is_this_process() -> None:
    found = here()
    assert found.pids
    assert found.host
    assert found.git_revision is None or len(found.git_revision) == 40
