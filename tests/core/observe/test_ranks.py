"""Ranks of a job that are killed: it is said at once which one, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from fakes.hosts import short_folder

from devexplorer.core.machines.greeting import Greeting
from devexplorer.core.observe import launch, ranks
from devexplorer.core.observe.ranks import RankWatch
from devexplorer.core.observe.running import AttachedEngine, running

JOB = """
import os, time
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.set_num_threads(1)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.ones(4, 8)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
"""
PATIENCE_S = 90.0


def scripts_of(folder: Path) -> list[Greeting]:
    """Those that were started there; others may run on this machine."""
    return [script for script in running() if script.folder == str(folder)]


def test_the_rank_that_was_killed_is_named_on_standard_error_and_in_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "job.py").write_text(JOB)
    with short_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", "job.py"]
        command = [sys.executable, "-m", "devexplorer.core.cli", "run", "--", sys.executable, *launcher]
        job = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert job.stderr is not None
        try:
            end = time.monotonic() + PATIENCE_S
            while len(found := scripts_of(tmp_path)) < 4:
                assert time.monotonic() < end
                time.sleep(0.2)
            (victim,) = (script for script in found if script.rank == 2)
            host = AttachedEngine(victim.pid, lambda event: None)
            host.start()
            while host._stream is None:
                assert time.monotonic() < end
                time.sleep(0.05)
            time.sleep(1.0)  # the launcher looks for new ranks four times a second
            os.kill(victim.pid, signal.SIGKILL)
            said, errors = "", []
            for said in job.stderr:
                if "devexplorer: rank" in said:
                    break
                errors.append(said)
            assert said == f"devexplorer: rank 2 (pid {victim.pid}) was killed: SIGKILL\n", errors
            assert host.join(30)
            assert host.goodbye is not None
            assert host.goodbye.reason == "job.py, rank 2 ended abruptly: it was killed, or crashed."
            rest = job.stderr.read()
            assert job.wait(30) == 1
            assert "Traceback" in rest, "torchrun says what it always says"
        finally:
            job.kill()
            job.wait()
            job.stderr.close()
        assert not re.search(r"devexplorer: rank \d \(pid", rest), "the launcher ended the others"
        assert scripts_of(tmp_path) == []
        assert not list(tmp_path.glob("devexplorer-job-*"))


def test_how_a_rank_ended_is_said_if_a_signal_did_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = tmp_path / "vmstat"
    counter.write_text("pgfault 5\noom_kill 3\n")
    monkeypatch.setattr(ranks, "MEMORY_COUNTERS", counter)
    for ends, line in {
        "os._exit(3)": None,
        "os.kill(os.getpid(), signal.SIGSEGV)": "rank 7 (pid {}) crashed: SIGSEGV",
        "os.kill(os.getpid(), signal.SIGRTMIN + 5)": f"rank 7 (pid {{}}) was killed: signal {signal.SIGRTMIN + 5}",
        "signal.pause()": "rank 7 (pid {}) was killed: SIGKILL; the kernel ended a process because memory ran out",
    }.items():
        folder = tmp_path / str(len(ends))
        folder.mkdir()
        watch = RankWatch(str(folder))
        with subprocess.Popen([sys.executable, "-c", f"import os, signal, time\ntime.sleep(0.3)\n{ends}"]) as rank:
            (folder / f"rank-7-{rank.pid}").touch()
            assert watch._find()
            if ends == "signal.pause()":
                counter.write_text("oom_kill 4\n")
                rank.kill()
            ((number, _),) = watch._poll.poll(30_000)
            how = watch._how_it_ended(number)
            assert (how and how[1]) == (line and line.format(rank.pid))
            rank.wait()
            assert ranks._signal_of(-1, rank.pid) == (how and how[0]), "its launcher was quicker"
        assert not watch._waiting
        folder.joinpath(f"rank-7-{rank.pid}").unlink()
        folder.rmdir()
        assert not watch._find()


def test_what_a_killed_job_left_is_removed_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = Path(launch._job_folder())
    (first / "rank-0-5").touch()
    others = tmp_path / "devexplorer-job-notes"
    others.mkdir()
    gone = tmp_path / "devexplorer-job-999999999-abc"
    gone.mkdir()
    (gone / "0.json").touch()
    second = Path(launch._job_folder())
    assert sorted(tmp_path.iterdir()) == sorted([first, second, others])
    assert psutil.pid_exists(int(second.name.split("-")[2]))
