"""What a window is told that looks into a running script: the events of an engine. Questions are answered, and what
would change the script is refused: nothing of the script changes. Threads: `observe-look` and `observe-answer`."""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any, TypeVar

import msgspec
import torch

from devexplorer.core.base import BadInput, DevExplorerError, LinkError, bytes_text, object_name, sentence, typed_line
from devexplorer.core.base.python_names import unique_name
from devexplorer.core.commands.registry import refused_title, title_of
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.nvml.library import free_bytes
from devexplorer.core.devices.torch_devices import TorchBackend, torch_facts
from devexplorer.core.engine.engine import AllocatorSampler, SnapshotDiffer
from devexplorer.core.engine.link import COMMAND_LIMIT, decode_command, read_payload
from devexplorer.core.engine.writer import EventWriter
from devexplorer.core.machines.host.wire import SocketStream
from devexplorer.core.models import device_id, held_by
from devexplorer.core.observe.changes import mover
from devexplorer.core.observe.holders import holders_answer
from devexplorer.core.observe.memory import virtual_machine
from devexplorer.core.observe.observer import Awaited, Observation, RunProgress, When
from devexplorer.core.observe.phases import NAMES
from devexplorer.core.observe.records import ScriptHeld, ScriptPlacement, ScriptSteps, StepMemory, WhatHolds
from devexplorer.core.observe.running import name_of
from devexplorer.core.observe.step_memory import step_memory
from devexplorer.core.observe.whereabouts import crossing_findings, own_files, placement_answer, weights_of
from devexplorer.core.planner.records import FitPlanned, PlanFit
from devexplorer.core.records import (
    AllocatorSample,
    Answer,
    Check,
    Checked,
    Command,
    Diagnosis,
    EngineDevices,
    EngineReady,
    Event,
    Fact,
    JobEnded,
    JobStarted,
    Move,
    ObjectRemoved,
    ObjectSnapshot,
    ObjectUse,
)
from devexplorer.core.workspace import Workspace
from devexplorer.core.workspace.placement import found_in, snapshot

T = TypeVar("T")

LOOK_S = 0.25
"""Between two readings of the allocators."""
OBJECTS_S = 2.0
"""Between two looks at the models, or longer: they take one part in `SHARE` of the time."""
BACKWARD_S = 30.0
"""So long an answer about a step waits for one."""
HOLDERS_S = 5.0
"""So long a search for what keeps something alive waits; without gradients and graphs any thread can do it."""
LAST_S = 1.0
"""So long an end waits at most for those who look."""
SHARE = 300
STEPS_S = 1.0
"""Between two words about the steps, where there were any."""

TITLE, WORDS = "Nothing was changed", "The script runs on its own, and this window only shows it"
MOVES_WORDS = "The script runs on its own, and only lets its models be moved"


class _WithoutCuda:
    """torch before the script has used CUDA: to ask it for cards would spoil processes that the script forks later. On
    virtual GPUs its CUDA is not real."""

    cuda = SimpleNamespace(is_available=lambda: False, device_count=lambda: 0, is_initialized=lambda: False)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _NotReached(BadInput):
    """The script has not come to where it could answer."""


class Looker:
    """Somebody who looks, until they leave."""

    def __init__(self, connection: socket.socket, observation: Observation) -> None:
        self._stream = SocketStream(connection)
        self._observation = observation
        self._over = threading.Event()
        self._stopped = threading.Event()
        self._writer = EventWriter(self._stream)
        self._differ = SnapshotDiffer()
        self._names: dict[int, str] = {}
        """Of the models, by `id`."""
        self._seen: dict[int, ObjectSnapshot] = {}
        self._found: dict[int, ObjectSnapshot] = {}
        """What is not said yet."""
        self._asked = False
        """Whether the observed thread will look."""
        self._registry: DeviceRegistry | None = None
        self._uses_cuda = self._moves = False
        self._due_s = self._steps_due_s = 0.0
        self._progress: RunProgress | None = None
        self._held, self._held_due_s = "", 0.0

    @property
    def over(self) -> bool:
        """Whether they have left."""
        return self._over.is_set()

    def start(self) -> None:
        """On threads of its own."""
        self._thread = threading.Thread(target=self._look, name="observe-look", daemon=True)
        self._thread.start()
        threading.Thread(target=self._answer, name="observe-answer", daemon=True).start()

    def stop(self) -> None:
        """Look no more, while the run is summed up; the thread that looks is waited for. The script's main thread."""
        self._stopped.set()
        self._thread.join(LAST_S)

    def say_last(self, event: Event) -> None:
        """The last word; it takes a moment at most."""
        self._writer.send(event)
        self._writer.flush(LAST_S)

    def end(self) -> None:
        """Let them go. Any thread."""
        self._over.set()
        self._stopped.set()
        self._writer.end()
        self._stream.close()

    def _answer(self) -> None:
        try:
            while (payload := read_payload(self._stream, COMMAND_LIMIT)) is not None:
                command = decode_command(payload)
                request, title = command.request, title_of(command)
                self._writer.send(JobStarted(request=request, title=title, time_unix_s=time.time(), command=command))
                try:
                    answer = self._answered(command)
                except Exception as error:  # one of ours is said as well, and the next question answered
                    words = sentence(str(error)) if isinstance(error, DevExplorerError) else typed_line(error)
                    answer = Answer(title=refused_title(command), words=words, failed=True)
                now = time.time()
                self._writer.send(msgspec.structs.replace(answer, request=request, time_unix_s=now))
                self._writer.send(JobEnded(request=request, ok=not answer.failed, time_unix_s=now))
        except (OSError, LinkError):
            pass
        self.end()

    def _answered(self, command: Command) -> Answer:
        """What is asked; what would change the script is refused, but for moves that it allows. Raises `BadInput`."""
        if isinstance(command, Move) and self._observation.allows_changes and self._registry is not None:
            models = {self._names[id(model)]: model for model in self._observation.models() if id(model) in self._names}
            move = mover(command, models, self._registry, self._observation)
            answer = self._of_script("change", move, "step has ended", BACKWARD_S)
            self._due_s = 0.0
            return answer
        if isinstance(command, StepMemory):
            return self._step_memory()
        if isinstance(command, PlanFit):
            return self._fit()
        if isinstance(command, Check):
            return self._check(command)
        if isinstance(command, ScriptPlacement):
            return placement_answer(self._observation)
        if not isinstance(command, WhatHolds):
            words = MOVES_WORDS if self._observation.allows_changes else WORDS
            return Answer(title=TITLE, words=f"{words}.", failed=True)
        name, _, path = command.target.partition(":")

        def look(autograd: bool = True) -> Answer:
            names = dict(self._names)  # not the model: what waits must not be among what keeps it alive
            model = next((model for model in self._observation.models() if names.get(id(model)) == name), None)
            if model is None:
                raise BadInput(f"the script has no model '{name}' any more")
            return holders_answer(found_in(name, model, path), autograd=autograd)

        if self._observation.held:
            return look(autograd=False)
        try:
            return self._of_script("look", look, "step has ended", HOLDERS_S)
        except _NotReached:
            return look(autograd=False)

    def _of_script(self, when: When, answer: Callable[[], T], awaited: str, seconds: float) -> T:
        """As the script's own thread finds it. Raises `_NotReached`, or what `answer` raises."""
        found: SimpleQueue[T | Exception] = SimpleQueue()

        def ask() -> None:
            try:
                found.put(answer())
            except Exception as error:
                found.put(error)

        asked = Awaited(when, ask)
        self._observation.asked.append(asked)
        try:
            result = found.get(timeout=seconds)
        except Empty:
            if self._observation.withdraw(asked):
                raise _NotReached(f"no {awaited} within {seconds:g} s") from None
            result = found.get()  # it has just begun
        if isinstance(result, Exception):
            raise result
        return result

    def _at_backward(self, answer: Callable[[], T]) -> T:
        return self._of_script("backward", answer, "backward pass began", BACKWARD_S)

    def _step_memory(self) -> Answer:
        answer = self._at_backward(step_memory)
        facts = list(answer.facts)
        for use in self._observation.memory.devices():
            if use.device != "cpu":
                marked = " (simulated)" if use.simulated else ""
                facts.append(Fact(f"peak so far, {use.device}{marked}", bytes_text(use.peak_allocated_bytes)))
        return msgspec.structs.replace(answer, facts=tuple(facts))

    def _check(self, command: Check) -> Answer:
        """The doctor's rules that need no run, and what was seen while the script ran."""
        from devexplorer.core.doctor.check import answer  # when somebody asks
        from devexplorer.core.doctor.in_use import examined_in_use

        observation, registry, name = self._observation, self._registry, object_name(command.target)
        if registry is None:
            raise BadInput("the script has not said yet which devices it has")
        seen, files = crossing_findings(observation), own_files(observation)

        def look() -> Diagnosis:
            names = dict(self._names)
            model = next((model for model in observation.models() if names.get(id(model)) == name), None)
            if model is None:
                raise BadInput(f"the script has no model '{name}' any more")
            devices = {device_id(tensor.device) for tensor in model.parameters()}
            known = [info for info in registry.infos() if info.id in devices]
            info = max(known, key=lambda info: info.id != "cpu") if known else registry.info("cpu")
            own = set(map(id, model.parameters()))
            optimizers = [one for one in observation.optimizers() if not own.isdisjoint(map(id, held_by(one)))]
            return examined_in_use(name, model, info, optimizers=optimizers, files=files, seen=seen)

        if observation.held:
            found = look()
        else:
            try:
                found = self._of_script("look", look, "step has ended", HOLDERS_S)
            except _NotReached:
                found = look()
        self._writer.send(Checked(target=name, diagnosis=found))
        return msgspec.structs.replace(answer(name, found, None), code="")

    def _fit(self) -> Answer:
        """Asked again where the model had been called before anybody wanted to know how large its batch is."""
        from devexplorer.core.observe.step_trace import observed_step  # when somebody asks
        from devexplorer.core.planner.observed import observed_answer

        observation = self._observation
        observation.batch = 0
        observation.want_batch(True)
        try:
            step = self._at_backward(lambda: observed_step(observation))
            if not step.batch:
                step = self._at_backward(lambda: observed_step(observation))
        finally:
            observation.want_batch(False)
        if observation.optimizers():
            self._of_script("look", observation.memory.look, "step has ended", BACKWARD_S)
        peaks = {use.device: use.peak_allocated_bytes for use in observation.memory.devices()}
        report = step.with_measured(peaks).report()
        self._writer.send(FitPlanned(target="", report=report))
        return observed_answer(report)

    def _look(self) -> None:
        try:
            while not self._stopped.wait(LOOK_S if self._registry is not None else 0.0):
                if not self._writer.waits:  # nothing piles up where nobody reads
                    self._say_devices()
                    self._say_models()
                    self._say_steps()
                    self._say_held()
        except Exception as error:  # a fault of ours ends the look, and not the script
            self._writer.send(Answer(title="The look at the script ended", words=str(error), failed=True))
            self._writer.flush(1.0)
            self.end()

    def _say_devices(self) -> None:
        machine = virtual_machine()
        uses_cuda = machine is None and torch.cuda.is_initialized()
        moves = self._observation.allows_changes
        if self._registry is None or (uses_cuda, moves) != (self._uses_cuda, self._moves):
            self._uses_cuda, self._moves = uses_cuda, moves
            module: Any = torch if uses_cuda else _WithoutCuda()
            self._registry = DeviceRegistry([TorchBackend(module=module, free_of=free_bytes)], None)
            if machine is not None:
                self._registry.add(machine)
            self._sampler = AllocatorSampler(self._say_reading, self._registry, Workspace(self._registry), time.time)
            self._writer.send(EngineDevices(devices=self._registry.infos(), problems=self._registry.problems()))
            facts = torch_facts(module)
            words = MOVES_WORDS if moves else WORDS
            ready = EngineReady(
                **facts, pid=os.getpid(), virtual_unavailable=words, recipes={}, read_only=words, moves=moves
            )
            self._writer.send(ready)
        self._sampler.read()

    def _say_reading(self, event: Event) -> None:
        self._writer.send(by_part(event, self._observation) if isinstance(event, AllocatorSample) else event)

    def _say_held(self) -> None:
        held, now = self._observation.held, time.monotonic()
        if held != self._held or (held and now >= self._held_due_s):
            self._held, self._held_due_s = held, now + STEPS_S  # again and again: who attaches has words of its own
            self._writer.send(ScriptHeld(how=held))

    def _say_steps(self) -> None:
        self._observation.fold_soon = True  # for the next time; at each step it would take a tenth of a millisecond
        if (now := time.monotonic()) < self._steps_due_s:
            return
        progress = self._observation.progress()
        before = self._progress
        self._progress, self._steps_due_s = progress, now + STEPS_S
        if before is None or progress.steps <= before.steps or progress.clock != before.clock:
            return
        if before.steps == 0:  # the first step comes with all that was before it: imports, reading the data
            return
        made = progress.steps - before.steps
        taken = {
            name: (after - earlier) / made / 1e9
            for name, after, earlier in zip(NAMES, progress.counted, before.counted, strict=True)
            if after > earlier
        }
        self._writer.send(
            ScriptSteps(
                time_unix_s=time.time(),
                steps=progress.steps,
                steps_per_second=made / (progress.seconds - before.seconds),
                phases=taken,
                simulated=progress.clock == "simulated",
                verdict="" if progress.verdict.kind == "not-sure" else progress.verdict.text,
            )
        )

    def _say_models(self) -> None:
        self._say_what_was_seen()
        if self._asked or (begun := time.monotonic()) < self._due_s:
            return
        models = {id(model): model for model in self._observation.models()}
        for key in [key for key in self._names if key not in models]:
            name = self._names.pop(key)
            self._seen.pop(key, None)
            self._differ.forget(name)
            self._writer.send(ObjectRemoved(name=name))
        for key, model in models.items():
            if key not in self._names:
                self._names[key] = unique_name(name_of(model), self._names.values())
        trains = self._observation.trains
        for key, model in models.items():
            if key not in self._seen or not trains:
                with suppress(RuntimeError):  # the script changes it just now: the next look sees it
                    self._found[key] = snapshot(self._names[key], model, gradients=False)
        self._say_what_was_seen()
        if trains:
            self._ask(models)
        self._pause(time.monotonic() - begun)

    def _ask(self, models: dict[int, Any]) -> None:
        """Let the observed thread look between two steps, gradients included."""
        self._asked = True
        names, refs = dict(self._names), {key: weakref.ref(model) for key, model in models.items()}

        def look() -> None:
            begun = time.monotonic()
            try:
                for key, ref in refs.items():
                    model = ref()
                    if model is not None and not self._stopped.is_set():
                        self._found[key] = snapshot(names[key], model)
            except Exception as error:
                self._observation.problem(error)
            self._pause(time.monotonic() - begun)
            self._asked = False

        self._observation.asked.append(Awaited("look", look))

    def _pause(self, seconds: float) -> None:
        self._due_s = time.monotonic() + max(OBJECTS_S, SHARE * seconds)

    def _say_what_was_seen(self) -> None:
        while self._found:
            key, seen = self._found.popitem()
            if key in self._names and seen != self._seen.get(key):
                self._seen[key] = seen
                self._writer.send(self._differ.news(seen, 0))


def parts_on(device: str, observation: Observation) -> dict[str, int]:
    """Bytes of the models there, as they were weighed last, by what they are for."""
    parts: Counter[str] = Counter()
    for _, weight in weights_of(observation):
        parts["parameters and buffers"] += weight.devices[device]
        parts["optimizer state"] += weight.states[device]
        parts["gradients"] += weight.gradients[device]
    return parts


def by_part(sample: AllocatorSample, observation: Observation) -> AllocatorSample:
    """With what the models have there by part, in place of objects of a workspace."""
    machine, rest = virtual_machine(), sample.allocated_bytes
    spoken = {f"vgpu:{gpu.index}": gpu.spoken for gpu in machine.gpus} if machine is not None else {}
    uses = []
    for name, size in parts_on(spoken.get(sample.device, sample.device), observation).items():
        if 0 < size <= rest:  # else it is gone since it was weighed, as gradients often are
            rest -= size
            uses.append(ObjectUse(name, size))
    held = sample.allocated_bytes - rest
    return msgspec.structs.replace(sample, workspace_bytes=held, objects=tuple(uses))
