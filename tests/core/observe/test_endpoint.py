"""A running script and a host that looks at it: what is told, what is refused, and that the script does not notice."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes.hosts import short_folder
from msgspec.structs import replace
from torch import nn

from devexplorer.core.base import BadInput
from devexplorer.core.machines.greeting import Greeting, socket_of
from devexplorer.core.machines.host import listing
from devexplorer.core.machines.records import Goodbye
from devexplorer.core.machines.window.link import CannotReach
from devexplorer.core.observe.endpoint import Endpoint
from devexplorer.core.observe.looker import Looker
from devexplorer.core.observe.observer import Observation
from devexplorer.core.observe.records import (
    DeviceUse,
    ObserveSettings,
    ScriptPlacement,
    ScriptSteps,
    StepMemory,
    WhatHolds,
)
from devexplorer.core.observe.running import (
    AttachedEngine,
    ScriptRoute,
    checked_script,
    running,
    script_of,
)
from devexplorer.core.planner.records import FitPlanned, FitSpec, PlanFit
from devexplorer.core.records import (
    Answer,
    Check,
    Checked,
    EngineDevices,
    EngineLost,
    EngineReady,
    Fact,
    JobEnded,
    Move,
    ObjectChanged,
    ObjectRemoved,
    Undo,
)

GREETING = Greeting(pid=os.getpid(), name="train.py", folder="/", since_unix_s=1.0, torch="2.13.0", rank=1, ranks=4)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("devexplorer.core.observe.running.folders", lambda: [str(tmp_path / "devexplorer")])
    monkeypatch.setattr("devexplorer.core.observe.running.ENDING_S", 0.02)
    monkeypatch.setattr("devexplorer.core.observe.looker.OBJECTS_S", 0.0)
    monkeypatch.setattr("devexplorer.core.observe.looker.SHARE", 0)
    monkeypatch.setattr("devexplorer.core.observe.looker.HOLDERS_S", 0.0)
    monkeypatch.setattr("devexplorer.core.observe.looker.STEPS_S", 0.0)
    monkeypatch.setattr("devexplorer.core.observe.looker.LOOK_S", 0.01)
    return tmp_path / "devexplorer"


@pytest.fixture
def observation() -> Observation:
    """Of a script that has called a model."""
    made = Observation(ObserveSettings(script="train.py"))
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    made.show(model)
    made.show(model[0])
    made.kept = model  # type: ignore[attr-defined]
    return made


@pytest.fixture
def endpoint(folder: Path, observation: Observation) -> Iterator[Endpoint]:
    made = Endpoint(GREETING, observation)
    made.open()
    yield made
    made.close()
    until(lambda: not [one for one in threading.enumerate() if one.name.startswith(("observe-", "link-out"))])


def until(done: Callable[[], Any]) -> Any:
    """Wait for it, two minutes at most: a machine with other work takes long to import torch."""
    end = time.monotonic() + 120
    while not (result := done()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return result


def lookers() -> list[threading.Thread]:
    """Those who look."""
    return [thread for thread in threading.enumerate() if thread.name == "observe-look"]


class Host:
    """What a host hears."""

    def __init__(self, pid: int = os.getpid()) -> None:
        self.events: list[Any] = []
        self.engine = AttachedEngine(pid, self.events.append)
        self.engine.start()

    def first(self, kind: type, wanted: Callable[[Any], bool] = lambda event: True) -> Any:
        """The first of its kind that is as wanted."""
        return until(lambda: next((one for one in list(self.events) if isinstance(one, kind) and wanted(one)), None))

    def ended(self) -> Goodbye:
        """What windows are told when nothing more comes."""
        found: Goodbye = until(lambda: self.engine.goodbye)
        return found

    def close(self) -> None:
        self.engine.close()
        assert self.engine.join(60)


@pytest.fixture
def host(endpoint: Endpoint) -> Iterator[Host]:
    made = Host()
    yield made
    made.close()


def test_a_script_is_listed_and_the_socket_of_one_that_was_killed_removed(folder: Path, endpoint: Endpoint) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(folder / "script-1.sock"))
    assert running() == [GREETING]
    assert not (folder / "script-1.sock").exists()
    assert (os.stat(socket_of(str(folder), os.getpid())).st_mode & 0o777, os.stat(folder).st_mode & 0o777) == (
        0o600,
        0o700,
    )
    endpoint.close()
    assert running() == []
    assert list(folder.iterdir()) == []


def test_a_script_is_no_host_that_could_be_stopped(folder: Path, endpoint: Endpoint) -> None:
    assert os.getpid() not in [host.pid for host in listing.running()]
    endpoint._socket.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]  # nobody answers
    listing.running()
    assert os.path.exists(socket_of(str(folder), os.getpid()))


def test_a_host_is_told_devices_models_and_what_changes(observation: Observation, host: Host) -> None:
    assert host.first(EngineDevices).devices[0].id == "cpu"
    assert host.first(EngineReady).read_only
    first = host.first(ObjectChanged).snapshot
    assert (first.name, first.type, first.bytes_by_device) == ("sequential", "Sequential", {"cpu": 36})
    model: Any = observation.kept  # type: ignore[attr-defined]
    model.double()
    host.first(ObjectChanged, lambda event: event.snapshot.bytes_by_device == {"cpu": 72})
    assert {event.snapshot.name for event in host.events if isinstance(event, ObjectChanged)} == {"sequential"}
    del observation.kept, model  # type: ignore[attr-defined]
    assert host.first(ObjectRemoved).name == "sequential"


def test_a_host_is_told_the_steps(observation: Observation, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    from devexplorer.core.observe import hooks

    host.first(ObjectChanged)
    monkeypatch.setattr(hooks, "_now", time.perf_counter_ns)
    monkeypatch.setattr(hooks, "_stamp", observation.fold.stamps.append)
    monkeypatch.setattr(hooks, "_begins", observation.fold.phases.append)
    for _ in range(3):
        observation.step(8)
    until(lookers)
    for _ in range(100):
        observation.step(8)
        if any(isinstance(event, ScriptSteps) for event in host.events):
            break
        time.sleep(0.05)
    told = host.first(ScriptSteps)
    assert told.steps > 0
    assert told.steps_per_second > 0
    assert set(told.phases) <= {"rest"}


def test_a_rate_is_of_the_time_in_which_its_steps_were_made(
    observation: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum that is there when somebody comes may be minutes old; what comes before the first step is no step."""
    said: list[ScriptSteps] = []
    ours, theirs = socket.socketpair()
    with ours, theirs:
        looker = Looker(ours, observation)
        monkeypatch.setattr(looker._writer, "send", said.append)
        for steps, seconds in ((0, 10.0), (4, 100.0), (24, 200.0)):
            observation.fold.steps, observation.fold.summed_s = steps, seconds
            looker._steps_due_s = 0.0
            looker._say_steps()
        looker.end()
    assert [one.steps_per_second for one in said] == [0.2]


def test_nothing_is_changed_from_a_window(host: Host) -> None:
    host.first(EngineReady)
    host.engine.send(Undo(request=7))
    answer = host.first(Answer)
    assert (answer.title, answer.request, answer.failed) == ("Nothing was changed", 7, True)
    assert not host.first(JobEnded).ok


def test_what_keeps_a_tensor_alive_is_answered(
    observation: Observation, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.first(ObjectChanged)
    model: Any = observation.kept  # type: ignore[attr-defined]
    monkeypatch.setitem(globals(), "HELD", [model[0].weight])  # a new list: what is frozen is not looked at
    host.engine.send(WhatHolds(request=5, target="sequential:0.weight"))
    answer = host.first(Answer)
    assert (answer.title, answer.request, answer.failed) == ("What keeps sequential:0.weight alive", 5, False)
    assert "• HELD[0], a global of test_endpoint.py" in answer.words.splitlines()
    assert not any(ours in answer.words for ours in ("looker.py", "observer.py"))
    assert host.first(JobEnded).ok
    host.engine.send(WhatHolds(request=6, target="gone"))
    answer = host.first(Answer, lambda event: event.request == 6)
    assert (answer.failed, answer.words) == (True, "The script has no model 'gone' any more.")


def test_the_memory_of_a_step_is_found_by_the_script_itself(
    observation: Observation, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.first(EngineReady)
    host.engine.send(StepMemory(request=3))
    until(lambda: observation.asked)
    peak = DeviceUse(device="cuda:0", peak_allocated_bytes=8 << 20)
    peaks = (peak, replace(peak, device="cuda:1", simulated=True))
    monkeypatch.setattr(observation.memory, "devices", lambda: peaks)
    observation.answer("backward")
    answer = host.first(Answer)
    assert answer.title == "Memory of a step, when backward begins"
    assert answer.facts[-2] == Fact("peak so far, cuda:0", "8.00 MiB")
    assert answer.facts[-1] == Fact("peak so far, cuda:1 (simulated)", "8.00 MiB")
    assert observation.asked == []
    monkeypatch.setattr("devexplorer.core.observe.looker.BACKWARD_S", 0.01)
    host.engine.send(StepMemory(request=4))
    answer = host.first(Answer, lambda event: event.request == 4)
    assert (answer.title, answer.failed) == ("The memory of a step is not known", True)
    assert answer.words.startswith("No backward pass began within")
    assert observation.asked == [], "it would cost a step that nobody waits for"
    host.engine.send(ScriptPlacement(request=5))
    assert host.first(Answer, lambda event: event.request == 5).title == "Where the models are"


def test_fit_waits_for_a_step_whose_batch_is_known(observation: Observation, host: Host) -> None:
    model: Any = observation.kept  # type: ignore[attr-defined]

    def call(*args: Any) -> torch.Tensor:
        observation.called_with(observation.roots[id(model)], sys._getframe())
        result: torch.Tensor = model(*args)
        return result

    host.first(EngineReady)
    host.engine.send(PlanFit(request=3, spec=FitSpec(source="the script", train=True)))
    until(lambda: observation.asked)
    observation.answer("backward")  # of a forward that was over already
    until(lambda: observation.asked)
    assert observation.batch_wanted
    loss = call(torch.ones(8, 2)).sum()
    observation.answer("backward")
    loss.backward()
    report = host.first(FitPlanned).report
    assert (report.spec.source, report.spec.batch, report.spec.train) == ("train.py", 8, True)
    assert [peak.device for peak in report.measured] == ["cpu"]
    assert len(report.fits) > 30
    answer = host.first(Answer)
    assert (answer.request, answer.failed, answer.title.startswith("train.py fits ")) == (3, False, True)
    assert not observation.batch_wanted


def test_the_doctor_looks_at_a_model_between_two_steps(observation: Observation, host: Host) -> None:
    host.first(ObjectChanged)
    host.engine.send(Check(request=4, target="sequential", device=""))
    found = host.first(Checked)
    assert (found.target, found.diagnosis.device, found.diagnosis.problems) == ("sequential", "cpu", ())
    assert [item.what for item in found.diagnosis.unchecked] == ["the forward, operation by operation", "a move"]
    answer = host.first(Answer)
    assert (answer.request, answer.failed) == (4, False)
    assert "nothing of it ran" in answer.words
    host.engine.send(Check(request=5, target="gone", device=""))
    answer = host.first(Answer, lambda event: event.request == 5)
    assert (answer.title, answer.words) == ("The model was not checked", "The script has no model 'gone' any more.")


def test_four_look_at_once_and_of_more_the_later_ones(endpoint: Endpoint, host: Host) -> None:
    host.first(EngineReady)
    others = [Host() for _ in range(3)]
    for other in others:
        other.first(ObjectChanged)
    assert not [one for one in host.events if isinstance(one, EngineLost)]
    assert len(lookers()) == 4
    others.append(Host())
    others[-1].first(ObjectChanged)
    goodbye = host.ended()
    assert (goodbye.reason, goodbye.for_good) == ("train.py, rank 1 goes on; another DevExplorer shows it now.", False)
    for other in others:
        other.close()
    until(lambda: not lookers())


def test_the_end_of_a_script_is_told_as_its_end(endpoint: Endpoint, host: Host) -> None:
    host.first(EngineReady)
    endpoint.close()
    goodbye = host.ended()
    assert (goodbye.reason, goodbye.for_good) == ("train.py, rank 1 has ended.", True)
    assert not any(isinstance(event, EngineLost) for event in host.events), "what was seen last stays"
    nobody = Host(pid=1)
    assert nobody.ended().reason == "The script (process 1) has ended."
    nobody.close()


def test_a_script_that_does_not_answer_may_be_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devexplorer.core.observe.running.ANSWER_S", 0.05)
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(socket_of(str(folder), os.getpid()))
        stopped.listen()
        host = Host()
        goodbye = host.ended()
        assert not goodbye.for_good
        assert "does not answer; it may be stopped in a debugger" in goodbye.reason
        host.close()


def test_a_window_is_told_which_script_a_process_is(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = os.getpid()
    assert checked_script(str(pid)) == script_of(pid) == GREETING
    for word in ("", "x", "-1", "0"):
        with pytest.raises(BadInput, match="takes the number of a process"):
            checked_script(word)
    endpoint.close()
    refused = f"process {pid} is no script of yours that is observed; 'devexplorer attach"
    with pytest.raises(BadInput, match=refused):
        checked_script(str(pid))
    looked: list[float] = []

    def listens_at_last(seconds: float) -> None:
        looked.append(seconds)
        endpoint.open()

    monkeypatch.setenv("DEVEXPLORER_AWAITED", str(pid))
    assert checked_script(str(pid), listens_at_last) == GREETING
    assert len(looked) == 1
    monkeypatch.setenv("DEVEXPLORER_AWAITED", "999999999")
    with pytest.raises(BadInput, match="process 999999999 is no script"):
        checked_script("999999999")
    answers = [[], [], [GREETING]]
    monkeypatch.setattr("devexplorer.core.observe.running.running", lambda: answers.pop(0))
    assert checked_script(str(pid), looked.append) == GREETING, "it listens, and was slow to answer"
    assert len(looked) == 3


def test_the_first_rank_stands_for_the_job_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    above = os.getppid()
    ranks = [replace(GREETING, pid=pid, rank=rank, job="a") for rank, pid in ((1, os.getpid()), (0, 999_999_999))]
    monkeypatch.setattr("devexplorer.core.observe.running.running", lambda: ranks)
    assert script_of(above) == ranks[0], "the other one has ended meanwhile"
    assert script_of(999_999_999) == ranks[1]
    assert script_of(999_999_998) is None
    ranks[1] = replace(ranks[1], pid=os.getpid())
    assert script_of(above) == ranks[1]
    ranks[:] = [replace(GREETING, rank=None)]
    assert script_of(above) is None, "what a shell started is no job of it"


def test_the_way_to_a_script_that_has_ended_says_so_and_starts_nothing(folder: Path) -> None:
    with pytest.raises(CannotReach, match=f"process {os.getpid()} has ended") as raised:
        ScriptRoute(os.getpid()).open()
    assert raised.value.final


def test_a_forked_child_answers_nobody_and_leaves_the_socket(endpoint: Endpoint, host: Host) -> None:
    host.first(EngineReady)
    child = os.fork()
    if not child:
        os._exit(0 if endpoint._socket is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert running() == [GREETING]


def test_a_fault_of_ours_ends_the_look_and_not_the_script(
    observation: Observation, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise ValueError("broken")

    monkeypatch.setattr(observation, "models", fails)
    host = Host()
    assert host.first(Answer).words == "broken"
    host.close()
    assert torch.ones(2).sum() == 2


MOVED = """import time, torch, devexplorer
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters())
devexplorer.attach(allow_changes=True)
places, left = [], 100_000
while left:
    place = model[0].weight.device
    if place not in places:
        places.append(place)
        left = left if len(places) == 1 else 500
    optimizer.zero_grad()
    model(torch.ones(4, 8, device=place)).sum().backward()
    optimizer.step()
    time.sleep(0.002)
    left -= 1
state = {value.device for values in optimizer.state.values() for key, value in values.items() if key != "step"}
print(*places, *state, type(model[0].weight).__name__, model[0].weight.grad.device)
"""


def test_a_script_that_allows_it_has_its_model_moved_between_two_steps(tmp_path: Path) -> None:
    script = tmp_path / "moved.py"
    script.write_text(MOVED)
    with short_folder() as runtime:
        environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
        command = [sys.executable, "-m", "devexplorer.core.cli", "run", "--virtual", "2x Tesla T4", str(script)]
        with (
            pytest.MonkeyPatch.context() as patch,
            subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run,
        ):
            patch.setenv("XDG_RUNTIME_DIR", str(runtime))
            try:
                until(lambda: script_of(run.pid))
                host = Host(run.pid)
                host.first(EngineReady, lambda event: event.moves)
                host.first(ObjectChanged)
                host.engine.send(Move(request=3, targets=("sequential",), device="vgpu:1"))
                answer = host.first(Answer, lambda event: event.request == 3)
                assert not answer.failed, answer.words
                assert "The state of its optimizer followed." in answer.words
                host.first(ObjectChanged, lambda event: set(event.snapshot.bytes_by_device) == {"vgpu:1"})
                out, err = run.communicate(timeout=60)
                host.close()
            finally:
                run.kill()
    assert (out, run.returncode) == ("cuda:0 cuda:1 cuda:1 Parameter cuda:1\n", 0), err


def test_a_move_that_cannot_be_is_refused_and_changes_nothing(
    observation: Observation, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devexplorer.core.observe.looker.BACKWARD_S", 0.0)
    host.first(ObjectChanged)
    move = Move(targets=("sequential",), device="cpu", dtype="float16")
    answers, copied, gone = [], replace(move, copy=True), replace(move, targets=("gone",))
    for number, command in enumerate((move, copied, gone, replace(move, targets=("sequential:0",)))):
        host.engine.send(replace(command, request=number + 1))
        answers.append(host.first(Answer, lambda event, number=number: event.request == number + 1).words)
        observation.allows_changes = True
    assert answers == [
        "The script runs on its own, and this window only shows it.",
        "A running script keeps no copies; its models can only be moved.",
        "The script has no model 'gone' any more.",
        "No step has ended within 0 s.",
    ]
    assert not observation.asked
    model: Any = observation.kept  # type: ignore[attr-defined]
    assert model[0].weight.dtype == torch.float32


def test_gradients_are_read_by_the_observed_thread_between_two_steps(observation: Observation, host: Host) -> None:
    """On another thread that would crash the script: backward and `zero_grad` free them without the GIL."""
    model: Any = observation.kept  # type: ignore[attr-defined]
    model[0].weight.grad = torch.ones(3, 2)
    observation.trains = True
    until(lambda: observation.asked)
    model[0].double()

    def has_gradient(event: Any) -> bool:
        return any(row.kind == "gradient" for row in event.snapshot.rows)

    assert not any(isinstance(event, ObjectChanged) and has_gradient(event) for event in host.events)
    observation.answer("look")
    host.first(ObjectChanged, has_gradient)


def test_without_an_optimizer_they_are_read_when_a_backward_is_over(observation: Observation, host: Host) -> None:
    model: Any = observation.kept  # type: ignore[attr-defined]
    host.first(ObjectChanged)
    model(torch.ones(1, 2)).sum().backward()
    observation.backward_ended()
    until(lambda: observation.asked)
    observation.backward_ended()
    host.first(ObjectChanged, lambda event: any(row.kind == "gradient" for row in event.snapshot.rows))


def test_gradients_are_read_by_the_observed_thread_when_asked_what_keeps_a_tensor_alive(
    observation: Observation, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.first(ObjectChanged)
    readers: set[int] = set()

    def read(tensor: torch.Tensor) -> torch.Tensor | None:
        readers.add(threading.get_ident())
        return tensor.grad

    monkeypatch.setattr("devexplorer.core.observe.alive.gradient", read)
    host.engine.send(WhatHolds(request=1, target="sequential:0.weight"))
    before = host.first(Answer, lambda event: event.request == 1)
    assert "Gradients and graphs were not checked" in before.words
    assert not readers, "the script may free them just now"
    monkeypatch.setattr("devexplorer.core.observe.looker.HOLDERS_S", 120.0)
    host.engine.send(WhatHolds(request=2, target="sequential:0.weight"))
    until(lambda: observation.asked)
    observation.returned()
    after = host.first(Answer, lambda event: event.request == 2)
    assert readers == {threading.get_ident()}
    assert (after.title, after.failed) == (before.title, False)
    assert "not checked" not in after.words
    assert "looker" not in after.words
    observation.held = "in a debugger"
    host.engine.send(WhatHolds(request=3, target="sequential"))
    assert "not checked" in host.first(Answer, lambda event: event.request == 3).words
