"""A script that is stopped, in a debugger or by a signal: that is no slow step, it is said, and windows are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fakes.hosts import short_folder

from devexplorer.core.observe.clocks import Clock
from devexplorer.core.observe.phases import BACKWARD, FORWARD, NAMES, OPTIMIZER, REST, StepFold
from devexplorer.core.observe.records import BY_SIGNAL, IN_DEBUGGER, ScriptHeld
from devexplorer.core.observe.running import AttachedEngine
from devexplorer.core.observe.stops import was_stopped

SCRIPT = """
import faulthandler, sys, time
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if "stop" in sys.argv:  # while other threads run, a dump can read what they change, and ends the process
    faulthandler.dump_traceback_later(1.5, exit=False)


def train(step):
    if step == 15 and "stop" in sys.argv:
        breakpoint()
    time.sleep(0.03)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


for step in range(int(sys.argv[1])):
    train(step)
    if step == 5:
        open("goes", "w").close()
faulthandler.cancel_dump_traceback_later()
print(model.weight.sum().item().hex())
"""
STOP_S = 2.5


def start(folder: Path, *words: str, observed: bool = True) -> subprocess.Popen[str]:
    """The script, once it has made some steps."""
    (folder / "train.py").write_text(SCRIPT)
    (folder / "goes").unlink(missing_ok=True)
    ours = ["-m", "devexplorer.core.cli", "run", "--report", "run.json"] if observed else []
    command = [sys.executable, *ours, "train.py", *words]
    pipes: dict[str, Any] = {"stdin": -1, "stdout": -1, "stderr": -1}
    process = subprocess.Popen(command, cwd=folder, text=True, **pipes)
    end = time.monotonic() + 60
    while not (folder / "goes").exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    return process


def check(folder: Path, how: str, steps: int) -> dict[str, Any]:
    """That this time belongs to no step."""
    report: dict[str, Any] = json.loads((folder / "run.json").read_text())
    assert list(report["stopped"]) == [how]
    assert report["stopped"][how] == pytest.approx(STOP_S, abs=0.8)
    assert report["steps"] == steps
    counted = sum(phase["seconds"] for phase in report["phases"])
    assert counted < report["seconds"] - STOP_S + 0.5
    return report


def test_a_stop_in_the_debugger_is_left_out_and_said(tmp_path: Path) -> None:
    said = {}
    for observed in (False, True):
        process = start(tmp_path, "40", "stop", observed=observed)
        assert process.stdin is not None
        time.sleep(0.3)
        process.stdin.write("p step + 1\n")
        process.stdin.flush()
        time.sleep(STOP_S)
        said[observed] = process.communicate("c\n", timeout=60)
        assert process.returncode == 0
    assert said[True][0] == said[False][0]
    assert "16" in said[True][0]
    for _, errors in said.values():
        assert "Timeout (0:00:01.500000)!" in errors
        assert 'train.py", line 17 in train' in errors
    ours = said[True][1][said[True][1].index("devexplorer:") :]
    assert " (stopped for 2." in ours or " (stopped for 3" in ours
    assert f" {IN_DEBUGGER}), " in ours
    check(tmp_path, IN_DEBUGGER, 40)


def test_a_stop_by_a_signal_is_left_out_and_windows_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with short_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        process = start(tmp_path, "120")
        events: list[Any] = []
        window = AttachedEngine(process.pid, events.append)
        window.start()

        def told(how: str) -> bool:
            window.beat()
            held = [event.how for event in list(events) if isinstance(event, ScriptHeld)]
            return bool(held) and held[-1] == how

        time.sleep(0.5)
        os.kill(process.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        while not told(BY_SIGNAL):
            assert time.monotonic() < stopped + 30
            time.sleep(0.05)
        time.sleep(max(0.0, stopped + STOP_S - time.monotonic()))
        os.kill(process.pid, signal.SIGCONT)
        while not told(""):
            assert time.monotonic() < stopped + 60
            time.sleep(0.05)
        _, errors = process.communicate(timeout=60)
        assert window.join(30)
    assert process.returncode == 0, errors
    check(tmp_path, BY_SIGNAL, 120)
    assert f" {BY_SIGNAL}), " in errors


def test_a_stop_is_taken_out_of_what_it_is_part_of() -> None:
    second = 1_000_000_000
    fold = StepFold()
    fold.stamps[:] = [0]
    for step in range(8):
        begun = 10 * step * second
        fold.stamps += [begun, begun + 4 * second]
        fold.phases += bytes((FORWARD, REST))
        fold.split = len(fold.phases) - 1
        fold.cut()
    fold.stops = [(2 * second, 3 * second), (43 * second, 45 * second), (200 * second, 201 * second)]
    fold.stamps.append(80 * second)
    fold.phases.append(REST)
    fold.fold()
    rows = fold.counts()[1]
    both = fold.warm_up.counted + fold.total.counted
    assert both[FORWARD] == (4 * 8 - 1 - 1) * second
    assert both[REST] == (6 * 8 - 1) * second
    assert len(rows) == 5
    assert fold.stops == [(200 * second, 201 * second)]


class CardClock(Clock):
    """Stamps: nanoseconds, and those of a card. Other programs have the processor for a fifth of the script's lines."""

    def between(self, begun: Any, ended: Any, waiting: bool) -> tuple[int, float]:
        real, card = ended[0] - begun[0], ended[1] - begun[1]
        return real, card + 0.8 * real * waiting


def test_a_stop_in_the_scripts_own_lines_is_taken_out_of_a_simulated_step() -> None:
    """As what a window asks: on a busy machine fewer seconds of it were counted than it took."""
    second = 1_000_000_000
    fold = StepFold(CardClock())
    fold.stamps[:] = [(0, 0)]
    for step in range(8):
        begun = 10 * step * second
        card = step * second
        fold.stamps += [(begun, card), (begun + 4 * second, card + second)]
        fold.phases += bytes((FORWARD, REST))
        fold.split = len(fold.phases) - 1
        fold.cut()
    assert [fold.leave_out(*stop) for stop in ((2 * second, 4 * second), (4 * second, 10 * second), (3, 7))] == [
        2 * second,
        6 * second,
        0,
    ]
    fold.stamps.append((80 * second, 8 * second))
    fold.phases.append(REST)
    fold.fold()
    both = fold.warm_up.counted + fold.total.counted
    assert both[FORWARD] == 8 * second
    assert round(both[REST] / second, 6) == round(7 * 6 * 0.8, 6)


def test_an_interruption_between_a_stamp_and_its_phase_costs_the_marks_since_the_last_sum_only() -> None:
    fold = StepFold()
    for phase in (FORWARD, OPTIMIZER, REST):
        fold.stamps.append(fold.clock.now())
        fold.phases.append(phase)
    fold.split = len(fold.phases) - 1
    fold.cut()
    fold.stamps.append(fold.clock.now())
    fold.fold()
    assert (fold.steps, len(fold.stamps), len(fold.phases), fold.cuts) == (0, 1, 1, [])


@pytest.mark.parametrize(
    ("phases", "wanted"),
    [
        ([FORWARD, REST, BACKWARD, OPTIMIZER], {"forward": 1, "rest": 1, "backward": 1, "optimizer": 1}),
        (
            [OPTIMIZER, FORWARD, OPTIMIZER, BACKWARD, OPTIMIZER],
            {"rest": 2, "forward": 1, "backward": 1, "optimizer": 1},
        ),
        (
            [OPTIMIZER, FORWARD, OPTIMIZER, BACKWARD, OPTIMIZER, FORWARD, OPTIMIZER, BACKWARD, OPTIMIZER],
            {"rest": 3, "forward": 2, "backward": 2, "optimizer": 2},
        ),
        ([FORWARD, BACKWARD, OPTIMIZER, BACKWARD, OPTIMIZER], {"forward": 1, "backward": 2, "optimizer": 2}),
    ],
)
def test_what_a_closure_does_beside_the_model_is_the_scripts(phases: list[int], wanted: dict[str, float]) -> None:
    fold = StepFold()
    fold.stamps[:] = range(len(phases) + 1)
    fold.phases[:] = bytes([*phases, FORWARD])
    fold.split = len(phases)
    fold.finish()
    counted = fold.counts()[0].counted
    assert {name: counted[number] for number, name in enumerate(NAMES) if counted[number]} == wanted


@pytest.mark.parametrize(
    ("asleep_s", "used_s", "waited_s", "stopped"),
    [(5.0, 0.0, 0.0, True), (5.0, 0.0, 4.0, False), (5.0, 2.0, 0.0, False), (0.5, 0.0, 0.0, False)],
    ids=["stopped", "waits for a processor", "works", "short"],
)
def test_a_process_on_a_busy_machine_is_not_stopped(
    asleep_s: float, used_s: float, waited_s: float, stopped: bool
) -> None:
    assert was_stopped(int(1e9 * asleep_s), int(1e9 * used_s), int(1e9 * waited_s)) == stopped
