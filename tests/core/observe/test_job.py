"""All ranks of a job as one engine: the first as it is, of the others their virtual GPUs, named by the rank."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fakes.look_records import CPU, ENGINE, VGPU
from msgspec.structs import replace

from devexplorer.core.observe import job
from devexplorer.core.observe.job import JobEngine
from devexplorer.core.observe.running import Greeting
from devexplorer.core.records import AllocatorSample, EngineDevices

FIRST = Greeting(pid=20, name="ddp.py", folder="/", since_unix_s=1.0, torch="2", rank=0, ranks=3, job="7")
SAMPLE = AllocatorSample(device="vgpu:0", time_unix_s=1.0, allocated_bytes=5, reserved_bytes=9, simulated=True)
DEVICES = EngineDevices(devices=(CPU, VGPU))


class RankFake:
    """The connection to another rank."""

    made: dict[int, RankFake]

    def __init__(self, pid: int, put: Any) -> None:
        self.put, self.closed = put, False
        RankFake.made[pid] = self

    def start(self) -> None:
        """Nothing is read."""

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    RankFake.made = {}
    scripts = [
        FIRST,
        replace(FIRST, pid=22, rank=2),
        replace(FIRST, pid=9, job="8", rank=1),
        replace(FIRST, pid=5, job=""),
    ]
    monkeypatch.setattr(job, "running", lambda: scripts)
    monkeypatch.setattr(job, "AttachedEngine", RankFake)
    monkeypatch.setattr(JobEngine, "_run", lambda self: None)
    return []


def test_virtual_gpus_of_the_other_ranks_are_beside_those_of_the_first(told: list[Any]) -> None:
    engine = JobEngine(20, told.append)
    engine.start()
    end = time.monotonic() + 10
    while 22 not in RankFake.made:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert list(RankFake.made) == [22], "those of its job"
    other = RankFake.made[22]
    other.put(DEVICES)
    assert told == [], "not before the first rank has said where it is"
    engine._put(DEVICES)
    (event,) = told
    assert [info.id for info in event.devices] == ["cpu", "vgpu:0", "rank 2 · vgpu:0"]
    other.put(SAMPLE)
    other.put(ENGINE)
    other.put(replace(SAMPLE, device="cpu", simulated=False))
    engine._put(SAMPLE)
    engine._put(ENGINE)
    assert told[1:] == [replace(SAMPLE, device="rank 2 · vgpu:0"), SAMPLE, ENGINE], "one engine, one CPU"
    engine.close()
    assert other.closed
