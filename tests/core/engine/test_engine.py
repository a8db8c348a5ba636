"""The engine in this process: how commands end, benchmarks during moves, cancelling, stopping, internal errors,
allocator_samples."""

from __future__ import annotations

import dataclasses
import queue
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from devexplorer.core.base import BadInput
from devexplorer.core.commands.registry import REGISTRY
from devexplorer.core.devices.profiles import load_profiles
from devexplorer.core.engine import engine as engine_module
from devexplorer.core.engine.engine import Engine, LocalEngine
from devexplorer.core.models import Extras
from devexplorer.core.records import (
    AddVirtual,
    AllocatorSample,
    Answer,
    Backward,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    BuildModel,
    Cancel,
    Combine,
    Command,
    DeviceSample,
    EditElement,
    EngineDevices,
    EngineReady,
    Event,
    Forward,
    JobEnded,
    JobProgress,
    JobStarted,
    Log,
    MatmulSpec,
    Move,
    Moved,
    NewTensor,
    ObjectChanged,
    ObjectRemoved,
    Remove,
    SetThreads,
    StartBenchmark,
    Steps,
    StopBenchmark,
    Undo,
    UndoState,
)
from devexplorer.core.virtual.backend import install, unavailable
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.parts import ParameterPart, Part

WAIT_S = 30.0
BUILD = BuildModel(recipe="mlp")
MOVE = Move(targets=("mlp",), device="vgpu:1")
X = NewTensor(name="x", shape=(2, 3))
Y = NewTensor(name="y", shape=(2, 3), device="vgpu:0")


@pytest.fixture(autouse=True)
def fresh_machine() -> Iterator[None]:
    if unavailable() is not None:
        pytest.skip(str(unavailable()))
    machine = install()
    machine.reset()
    yield
    machine.reset()


@pytest.fixture
def local() -> Iterator[LocalEngine]:
    with LocalEngine("2x Tesla T4") as engine:
        until(engine, lambda event: isinstance(event, EngineDevices))
        yield engine


def until(local: LocalEngine, wanted: Callable[[Event], bool]) -> list[Event]:
    """Every event up to the wanted one."""
    seen: list[Event] = []
    for event in local.events(-1, WAIT_S):
        seen.append(event)
        if wanted(event):
            break
    return seen


def ended(request: int) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, JobEnded) and event.request == request


def matmul(device: str, **given: object) -> StartBenchmark:
    return StartBenchmark(spec=MatmulSpec(device=device, m=32, n=32, k=32, **given))  # type: ignore[arg-type]


def of(kind: type[Event], events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kind)]


# --- how commands end


def test_what_no_feature_carries_out_is_not_offered(local: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def offers() -> list[type[Command]]:
        (answer,) = of(Answer, local.run(Combine(left="x", right="y")))
        assert isinstance(answer, Answer)
        return [type(offer.command) for offer in answer.offers]

    for command in (X, Y):
        local.run(command)
    assert offers() == [Steps, Steps]
    monkeypatch.delitem(REGISTRY, Steps)
    assert offers() == []


def test_it_announces_itself_and_its_devices_first() -> None:
    with LocalEngine("Tesla T4") as engine:
        events = until(engine, lambda event: isinstance(event, EngineReady))
    devices, ready = events[0], events[-1]
    assert isinstance(ready, EngineReady)
    assert isinstance(devices, EngineDevices), "no window takes it for one without GPUs"
    assert "mlp" in ready.recipes
    assert ready.torch_version == torch.__version__
    assert [info.id for info in devices.devices if info.usable and info.kind in ("cpu", "virtual")] == ["cpu", "vgpu:0"]


WORKS: list[tuple[tuple[Command, ...], Command, type[Event]]] = [
    ((), BUILD, ObjectChanged),
    ((), X, ObjectChanged),
    ((BUILD,), MOVE, Moved),
    ((BUILD, MOVE), Undo(), Moved),
    ((X,), Remove(names=("x",)), ObjectRemoved),
    ((BUILD,), Forward(target="mlp", output="y"), ObjectChanged),
    ((BUILD, MOVE), Backward(target="mlp"), ObjectChanged),
    ((X,), EditElement(target="x", index=(0, 1), value=5.0), ObjectChanged),
    ((X, NewTensor(name="y", shape=(2, 3))), Combine(left="x", right="y"), ObjectChanged),
    ((), matmul("cpu", iterations=3, seconds=None), BenchEnded),
    ((), matmul("vgpu:1", iterations=3, seconds=None), BenchEnded),
    ((), AddVirtual(spec="NVIDIA A10"), EngineDevices),
    ((), SetThreads(threads=torch.get_num_threads()), EngineDevices),
    ((), StopBenchmark(), JobStarted),
    ((), Cancel(job=77), JobStarted),
]
FAILS: list[tuple[tuple[Command, ...], Command, str]] = [
    ((), BuildModel(recipe="mpl"), "did you mean mlp?"),
    ((), NewTensor(shape=(-1,)), "-1"),
    ((BUILD,), Move(targets=("mlp",), device="vgpu:9"), "no device 'vgpu:9'"),
    ((), Undo(), "nothing to undo"),
    ((), Remove(names=("x",)), "no object 'x'"),
    ((BUILD, X), Forward(target="mlp", input="x"), "stopped in"),
    ((), Backward(target="mlp"), "no object 'mlp'"),
    ((X,), EditElement(target="x", index=(9, 0), value=1.0), "out of range"),
    ((X, Y), Combine(left="x", right="y"), "one device at a time"),
    ((), matmul("vgpu:9"), "no device 'vgpu:9'"),
    ((), matmul("cpu", dtype="complex64"), "does not measure complex64"),
    ((), AddVirtual(spec="Voodoo"), "no profile 'Voodoo'"),
    ((), SetThreads(threads=0), "0"),
]


@pytest.mark.parametrize(
    ("before", "command", "effect"), WORKS, ids=lambda case: type(case).__name__ if isinstance(case, Command) else ""
)
def test_what_works_ends_once_after_everything_it_caused(
    local: LocalEngine, before: tuple[Command, ...], command: Command, effect: type[Event]
) -> None:
    for earlier in before:
        assert of(JobEnded, local.run(earlier))[-1].ok  # type: ignore[union-attr]
    events = [event for event in local.run(command) if getattr(event, "request", 0)]
    events += [event for event in local.run(Cancel(job=99)) if getattr(event, "request", 0) == events[0].request]  # type: ignore[union-attr]
    assert isinstance(events[0], JobStarted)
    assert events[0].title
    assert events[-1:] == of(JobEnded, events)
    assert events[-1].ok  # type: ignore[union-attr]
    assert of(effect, events)
    assert not any(event.failed for event in of(Answer, events))  # type: ignore[union-attr]
    assert not of(Log, events)


@pytest.mark.parametrize(
    ("before", "command", "words"), FAILS, ids=lambda case: type(case).__name__ if isinstance(case, Command) else ""
)
def test_what_fails_says_why_and_ends_once(
    local: LocalEngine, before: tuple[Command, ...], command: Command, words: str
) -> None:
    for earlier in before:
        local.run(earlier)
    objects = {name: local.engine.workspace.snapshot(name) for name in local.engine.workspace.names}
    events = local.run(command)
    (answer,) = of(Answer, events)
    assert isinstance(answer, Answer)
    assert answer.failed
    assert words.lower() in answer.words.lower()
    assert events[-1:] == of(JobEnded, events)
    assert not events[-1].ok  # type: ignore[union-attr]
    assert not of(Log, events), "a mistake of the user's is no traceback"
    assert {name: local.engine.workspace.snapshot(name) for name in local.engine.workspace.names} == objects
    assert of(JobEnded, local.run(BUILD))[-1].ok, "and the engine goes on"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "mistake", [RuntimeError("boom\nand more"), KeyError("x"), AssertionError(), SystemExit(3)], ids=repr
)
def test_a_mistake_inside_becomes_a_failed_answer_and_the_engine_continues(
    local: LocalEngine, monkeypatch: pytest.MonkeyPatch, mistake: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise mistake

    with monkeypatch.context() as patched:
        patched.setattr(engine_module, "dispatch", fail)
        events = local.run(BUILD)
    (answer,), (log,) = of(Answer, events), of(Log, events)
    assert isinstance(answer, Answer)
    assert isinstance(log, Log)
    assert answer.failed
    assert log.level == "error"
    assert type(mistake).__name__ in log.text, "the log has the whole story"
    assert events[-1:] == of(JobEnded, events)
    assert of(JobEnded, local.run(BUILD))[-1].ok  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "full",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried …"),
        MemoryError(),
    ],
)
def test_a_machine_without_memory_is_a_refusal_in_a_line(
    local: LocalEngine, monkeypatch: pytest.MonkeyPatch, full: Exception
) -> None:
    def fail(*_: object) -> None:
        raise full

    with monkeypatch.context() as patched:
        patched.setattr(engine_module, "dispatch", fail)
        events = local.run(BUILD)
    (answer,) = of(Answer, events)
    assert isinstance(answer, Answer)
    assert answer.failed
    assert answer.words == (
        "This machine has no memory left for it, and nothing has changed. Remove objects, or close other programs."
    )
    assert not of(Log, events), "no mistake of ours"


def test_demand_raises_what_was_refused(local: LocalEngine) -> None:
    with pytest.raises(BadInput, match="did you mean mlp") as caught:
        local.demand(BuildModel(recipe="mpl"))
    assert not caught.value.virtual_helps


# --- benchmarks


def test_moves_go_on_between_the_blocks_of_a_benchmark_on_the_cpu(local: LocalEngine) -> None:
    local.run(BUILD)
    run = local.send(matmul("cpu", seconds=600))
    until(local, lambda event: isinstance(event, BenchPoint))
    for device in ("vgpu:0", "cpu", "vgpu:1"):
        events = local.run(Move(targets=("mlp",), device=device))
        assert of(Moved, events)
    assert set(local.engine.workspace.snapshot("mlp").bytes_by_device) == {"vgpu:1"}
    until(local, lambda event: isinstance(event, BenchPoint))
    local.send(StopBenchmark(run=run))
    (over,) = of(BenchEnded, until(local, ended(run)))
    assert isinstance(over, BenchEnded)
    assert over.result is not None
    assert over.result.stopped


def test_two_virtual_gpus_are_measured_at_the_same_time(local: LocalEngine) -> None:
    runs = [local.send(matmul(device, seconds=600)) for device in ("vgpu:0", "vgpu:1")]
    seen: set[str] = set()
    for event in local.events(-1, WAIT_S):
        if isinstance(event, BenchPoint):
            seen.add(event.device)
            assert event.simulated
        if isinstance(event, BenchEnded):
            pytest.fail("a run has ended before both were seen")
        if seen == {"vgpu:0", "vgpu:1"}:
            break
    local.send(StopBenchmark())
    waiting = set(runs)
    while waiting:
        waiting -= {
            event.request
            for event in until(local, lambda event: isinstance(event, JobEnded))
            if isinstance(event, JobEnded)
        }


def test_a_device_that_is_measured_already_refuses_a_second_run(local: LocalEngine) -> None:
    first = local.send(matmul("vgpu:0", seconds=600))
    until(local, lambda event: isinstance(event, BenchStarted))
    second = local.send(matmul("vgpu:0", seconds=600))
    (answer,) = of(Answer, until(local, ended(second)))
    assert isinstance(answer, Answer)
    assert "running on vgpu:0 already" in answer.words
    assert of(BenchPoint, until(local, lambda event: isinstance(event, BenchPoint))), "the first one goes on"
    local.send(StopBenchmark(run=first))
    until(local, ended(first))
    assert of(BenchEnded, local.run(matmul("vgpu:0", iterations=2, seconds=None))), "and then there is room"


@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
@pytest.mark.parametrize(
    "command", [StopBenchmark(run=1), StopBenchmark(), Cancel(job=1)], ids=["this", "all", "cancel"]
)
def test_stopping_takes_no_further_block(device: str, command: Command) -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def listen(event: Event) -> None:
        events.put(event)
        if isinstance(event, BenchPoint):  # on the measuring thread, so between two blocks
            engine.submit(command)

    engine = Engine(listen, virtual_spec="Tesla T4", sampling_seconds=None)
    engine.start()
    try:
        spec = matmul(device, seconds=600).spec
        engine.submit(StartBenchmark(request=1, spec=spec))
        seen = [events.get(timeout=WAIT_S)]
        while not ended(1)(seen[-1]):
            seen.append(events.get(timeout=WAIT_S))
    finally:
        assert engine.close(WAIT_S)
    assert len(of(BenchPoint, seen)) == 1
    (over,) = of(BenchEnded, seen)
    assert isinstance(over, BenchEnded)
    assert over.result is not None
    assert (over.result.blocks, over.result.stopped) == (1, True)


@pytest.mark.parametrize(
    "command", [StopBenchmark(run=1), StopBenchmark(), Cancel(job=1)], ids=["this", "all", "cancel"]
)
def test_a_benchmark_that_still_waits_is_stopped_too(command: Command) -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = Engine(events.put, sampling_seconds=None)
    engine.submit(StartBenchmark(request=1, spec=matmul("cpu", seconds=600).spec))
    engine.submit(command)
    engine.start()
    try:
        seen = [events.get(timeout=WAIT_S)]
        while not ended(1)(seen[-1]):
            seen.append(events.get(timeout=WAIT_S))
    finally:
        assert engine.close(WAIT_S)
    assert not of(BenchPreparing, seen)


def test_closing_waits_for_no_benchmark() -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = Engine(events.put, virtual_spec="2x Tesla T4", sampling_seconds=0.01)
    engine.start()
    for number, device in enumerate(("cpu", "vgpu:0", "vgpu:1"), 1):
        engine.submit(StartBenchmark(request=number, spec=matmul(device, seconds=600).spec))
    while not isinstance(events.get(timeout=WAIT_S), BenchPoint):
        pass
    assert engine.close(WAIT_S), "every thread has ended, those of runs that are just over too"


def test_closing_ends_every_benchmark_with_what_it_has_measured() -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = Engine(events.put, virtual_spec="Tesla T4", sampling_seconds=None)
    engine.start()
    for number, device in enumerate(("cpu", "vgpu:0"), 1):
        engine.submit(StartBenchmark(request=number, spec=matmul(device, seconds=600).spec))
    measured: set[int] = set()
    while measured != {1, 2}:
        event = events.get(timeout=WAIT_S)
        if isinstance(event, BenchPoint):
            measured.add(event.run)
    assert engine.close(WAIT_S)
    ends = of(BenchEnded, [events.get_nowait() for _ in range(events.qsize())])
    assert {end.run: end.result is not None and end.result.stopped for end in ends} == {1: True, 2: True}


# --- cancelling, threads, devices


def test_a_cancelled_move_leaves_everything_where_it_was(local: LocalEngine) -> None:
    local.run(BUILD)
    before = local.engine.workspace.snapshot("mlp")
    send = local.engine.send

    def cancel_at_the_first_step(event: Event) -> None:
        send(event)
        if isinstance(event, JobProgress):
            local.engine.submit(Cancel(request=900, job=event.request))

    local.engine.send = cancel_at_the_first_step
    events = local.run(Move(targets=("mlp",), device="vgpu:0"))
    assert of(JobProgress, events), "it was under way"
    assert not of(Moved, events)
    assert events[-1].ok is False  # type: ignore[union-attr]
    assert local.engine.workspace.snapshot("mlp") == before, "the very same tensors"
    local.engine.send = send
    assert of(Moved, local.run(Move(targets=("mlp",), device="vgpu:0")))


def test_a_move_that_cannot_be_rolled_back_shows_what_is_where_and_forgets_older_changes(
    local: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.run(BUILD)

    def stuck(part: ParameterPart) -> None:
        raise RuntimeError("no way back")

    def commit(mover: Mover, part: Part) -> None:
        part.commit()
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(ParameterPart, "rollback", stuck)
    monkeypatch.setattr(local.engine.workspace.mover, "_commit", partial(commit, None))
    events = local.run(Move(targets=("mlp",), device="vgpu:0"))
    (shown,) = of(ObjectChanged, events)
    assert isinstance(shown, ObjectChanged)
    assert set(shown.snapshot.bytes_by_device) == {"cpu", "vgpu:0"}, "one part stayed there"
    (undo,) = of(UndoState, events)
    assert isinstance(undo, UndoState)
    assert undo.title is None, "what came before no longer applies"
    (answer,) = of(Answer, events)
    assert isinstance(answer, Answer)
    assert answer.failed
    assert "could not be put back; nothing else has changed" in answer.words
    assert not of(Log, events), "an error that has its words is not a bug"


def test_a_change_whose_report_fails_is_shown_and_counts_as_done(
    local: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.run(BUILD)
    monkeypatch.setattr(local.engine, "_answer", Mock(side_effect=RuntimeError("a bug in the answer")))
    events = local.run(Move(targets=("mlp",), device="vgpu:0"))
    assert events[-1].ok is True  # type: ignore[union-attr]
    shown = of(ObjectChanged, events)[-1]
    assert isinstance(shown, ObjectChanged)
    assert set(shown.snapshot.bytes_by_device) == {"vgpu:0"}
    (line,) = of(Log, events)
    assert isinstance(line, Log)
    assert "a bug in the answer" in line.text
    failing = local.run(Move(targets=("nothing",), device="vgpu:0"))
    assert failing[-1].ok is False  # type: ignore[union-attr]
    monkeypatch.undo()
    assert of(Answer, local.run(Undo())), "the jobs thread goes on"


def test_a_command_cancelled_before_its_turn_is_not_carried_out() -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = Engine(events.put, sampling_seconds=None)
    engine.submit(BuildModel(request=1, recipe="mlp"))
    engine.submit(Cancel(request=2, job=1))
    engine.start()
    try:
        seen = [events.get(timeout=WAIT_S)]
        while not ended(2)(seen[-1]):
            seen.append(events.get(timeout=WAIT_S))
    finally:
        assert engine.close(WAIT_S)
    assert [(event.request, event.ok) for event in seen if isinstance(event, JobEnded)] == [(1, False), (2, True)]
    (answer,) = of(Answer, seen)
    assert isinstance(answer, Answer)
    assert (answer.request, answer.cancelled) == (1, True)
    assert engine.workspace.names == ()


def test_an_event_that_cannot_cross_the_link_is_an_error_line_and_the_jobs_go_on() -> None:
    with LocalEngine() as local:
        local.engine.send(AllocatorSample(device="cpu", time_unix_s=float("inf"), allocated_bytes=0, reserved_bytes=0))
        events = local.run(BUILD)
    (line,) = of(Log, events)
    assert isinstance(line, Log)
    assert line.level == "error"
    assert line.text.startswith("AllocatorSample could not be sent: ")
    assert of(ObjectChanged, events)


def test_threads_are_set_and_announced(local: LocalEngine) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            (devices,) = of(EngineDevices, local.run(SetThreads(threads=threads)))
            assert isinstance(devices, EngineDevices)
            assert next(info.threads for info in devices.devices if info.id == "cpu") == threads
            (over,) = of(BenchEnded, local.run(matmul("cpu", iterations=1, seconds=None)))
            assert isinstance(over, BenchEnded)
            assert over.result is not None
            assert over.result.threads == threads, "what computes has as many"
    finally:
        local.run(SetThreads(threads=before))


def test_virtual_gpus_join_a_running_engine() -> None:
    with LocalEngine() as engine:
        assert not of(Moved, engine.run(Move(targets=("mlp",), device="vgpu:0")))
        (devices,) = of(EngineDevices, engine.run(AddVirtual(spec="Tesla T4, NVIDIA A10")))
        assert isinstance(devices, EngineDevices)
        assert [info.name for info in devices.devices if info.simulated] == ["Tesla T4", "NVIDIA A10"]
        engine.run(BUILD)
        assert of(Moved, engine.run(Move(targets=("mlp",), device="vgpu:1")))


def test_an_edit_of_a_models_file_is_noticed_while_nothing_is_done(tmp_path: Path) -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    engine = Engine(events.put, sampling_seconds=None, watch_seconds=0.01)
    file, edited = tmp_path / "net.py", tmp_path / "net.py~"
    file.write_text("class Net: ...")
    status = file.stat()
    extras = Extras(source=f"{file}:Net", folder=str(tmp_path))
    extras.files[str(file)] = (str(tmp_path), status.st_mtime_ns, status.st_size)
    engine.workspace.add("net", nn.Linear(2, 2), extras)
    engine.start()
    try:
        engine.submit(Move(request=1, targets=("net",), device="cpu", dtype="float64"))
        while not ended(1)(event := events.get(timeout=WAIT_S)):
            assert not isinstance(event, ObjectChanged) or event.snapshot.outdated == ()
        edited.write_text("raise SystemExit('the code of a file that changed is not run')")
        edited.replace(file)  # as editors save
        event = events.get(timeout=WAIT_S)
        assert isinstance(event, ObjectChanged)
        assert (event.snapshot.name, event.snapshot.outdated) == ("net", (str(file),))
    finally:
        assert engine.close(WAIT_S)
    assert events.empty(), "once"


# --- allocator_samples and memory


def allocator_samples(local: LocalEngine) -> dict[str, AllocatorSample]:
    local.engine.allocator_sampler.read()
    events = local.run(Cancel(job=99))
    return {event.device: event for event in events if isinstance(event, AllocatorSample)}


def test_allocator_samples_follow_what_the_workspace_holds(local: LocalEngine) -> None:
    local.run(BUILD)
    assert allocator_samples(local)["vgpu:1"].allocated_bytes == 0
    local.run(MOVE)
    sample = allocator_samples(local)["vgpu:1"]
    assert sample.simulated
    assert sample.workspace_bytes == sum(local.engine.workspace.snapshot("mlp").bytes_by_device.values())
    assert sample.workspace_bytes <= sample.allocated_bytes <= sample.reserved_bytes
    local.run(Remove(names=("mlp",)))
    sample = allocator_samples(local)["vgpu:1"]
    assert (sample.workspace_bytes, sample.allocated_bytes) == (0, 0)
    assert sample.reserved_bytes > 0, "cached, as CUDA would"


def test_the_sampler_thread_reads_by_itself() -> None:
    with LocalEngine("Tesla T4", sampling_seconds=0.01) as engine:
        seen: set[type[Event]] = set()
        for event in engine.events(-1, WAIT_S):
            if isinstance(event, AllocatorSample | DeviceSample) and event.device == "vgpu:0":
                seen.add(type(event))
            if len(seen) == 2:
                break
    assert seen == {AllocatorSample, DeviceSample}


def test_a_virtual_gpu_that_is_full_says_so_and_the_engine_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    tesla = load_profiles()["Tesla T4"]
    tiny = dataclasses.replace(tesla, usable_bytes=(400 + 32) << 20)  # the context takes 400 MiB
    monkeypatch.setattr("devexplorer.core.virtual.backend.parse_virtual", lambda _spec: [tiny])
    with LocalEngine("tiny") as local:
        local.run(BuildModel(recipe="mlp", device="vgpu:0"))
        local.run(NewTensor(name="x", shape=(40_000, 20), device="vgpu:0"))
        before = allocator_samples(local)["vgpu:0"].allocated_bytes
        events = local.run(Forward(target="mlp", input="x"))  # the hidden layer takes 39 MiB
        (answer,) = of(Answer, events)
        assert isinstance(answer, Answer)
        assert answer.failed
        assert "out of memory" in answer.title
        assert allocator_samples(local)["vgpu:0"].allocated_bytes == before
        (answer,) = of(Answer, local.run(StartBenchmark(spec=MatmulSpec(device="vgpu:0", m=4096, n=4096, k=4096))))
        assert isinstance(answer, Answer)
        assert "needs 192.00 MiB" in answer.words
        assert of(UndoState, local.run(EditElement(target="x", index=(0, 0), value=2.0)))
