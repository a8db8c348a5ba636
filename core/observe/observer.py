"""`start` and `Observation.finish`: a run of a script from its first line to its report. The thread that is observed.

Nothing here may reach the script: an exception of ours becomes a line of `problems`, once.
"""

from __future__ import annotations

import os
import platform
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from devexplorer.core.base.errors import first_line
from devexplorer.core.observe import hooks
from devexplorer.core.observe.called import CalledModel, largest_first, observed_models, parameter_places
from devexplorer.core.observe.clocks import EventClock, HostClock, SimulatedClocks
from devexplorer.core.observe.memory import MemoryWatch, virtual_machine
from devexplorer.core.observe.phases import (
    EVALUATION,
    FORWARD,
    LONG_STEP_MARKS,
    NAMES,
    READ,
    REST,
    StepFold,
    StepTimes,
    line_text,
    move_waiting,
)
from devexplorer.core.observe.places import RestPlaces, Stack, is_own, stack_of, whole_of
from devexplorer.core.observe.records import (
    PARTS,
    ObserveSettings,
    PhaseTime,
    RunReport,
    RunVerdict,
)
from devexplorer.core.observe.verdict import REST_SHARE, RunEvidence, judge
from devexplorer.core.observe.weights import weighed

UNSEEN_NS = 800_000_000
"""Stops are looked for more often than that, unless the process is stopped."""
LONGEST_LIST = 10_000
PROBLEMS = 20
EARLY_ROUNDS = (1, 10, 100)
"""Models are weighed at these steps."""
WEIGHED_ROUNDS = 1_000
"""And then once so many are over and memory is looked at."""
EARLY_FOLDS = (6, 12, 24, 48)
"""After these steps marks are summed up, however few they are."""
NO_MODELS = ("torch.nn.modules.loss", "torch.ao.quantization.")
"""Modules of torch that scripts call beside their models: losses, observers of quantisation."""

When = Literal["look", "change", "backward"]
"""What an answer waits for. `look`: the script's own thread between two of its operations; on another one, who reads
gradients while backward frees them crashes the script. `change`: the same, where a step has ended. `backward`: that one
begins."""


class Awaited(NamedTuple):
    """A question of a window's that the script's own thread answers."""

    when: When
    answer: Callable[[], object]


class RunProgress(NamedTuple):
    """How far a run was at a time of `perf_counter`; `counted`: nanoseconds of each phase."""

    seconds: float
    steps: int
    counted: tuple[float, ...]
    clock: str
    verdict: RunVerdict


class Observation:
    """A run that is looked at."""

    def __init__(self, settings: ObserveSettings) -> None:
        self.settings = settings
        self.problems: list[str] = []
        self.fold = StepFold()
        self.scaling = False
        """Whether `GradScaler.step` is at work, which calls the optimizer or leaves it out."""
        self.memory = MemoryWatch()
        self.places: RestPlaces | None = None
        self.forward_stack: list[tuple[Any, int]] = []
        self.optimizer_stack: list[tuple[Any, int]] = []
        self.rounds = 0
        self._weighed = 0
        """At which of the rounds models were weighed last."""
        self.roots: dict[int, CalledModel] = {}
        """Models that the script calls itself, by identity."""
        self.known: dict[int, CalledModel] = {}
        """`roots`, while their calls need only be counted: it is `settled`, and nobody wants to know the batch."""
        self._gone: dict[tuple[str, str], CalledModel] = {}
        self.stepped_with: dict[int, Any] = {}
        """Optimizers by identity."""
        self._stepped: set[int] = set()
        self.allows_changes = False
        """Windows may move its models."""
        self.asked: list[Awaited] = []
        """What windows wait for."""
        self.held = ""
        """How it is stopped now, as in `stops`; empty: it runs."""
        self.stops_seen_ns = 0
        """When stops were looked for last; 0: they are not."""
        self.stopped: dict[str, float] = {}
        """Seconds for which it was, by how."""
        self.fold_soon = False
        """Somebody who looks wants to know about the steps: they are summed up when this one is over."""
        self.batch_wanted = False
        """Somebody wants to know how large the batches are: `batch` follows the calls of models."""
        self.batch = 0
        self._trained = False
        self._by_hand = False
        """The script calls `step` itself."""
        self.settled = False
        """Where a step ends is known: it trains, or says so itself. Until then a call of a model may end one."""
        self.trains = False
        """Gradients come and go, or it says where a step ends: those who look wait for a moment in between."""
        self.samples = 0
        """That it worked on, as it says itself."""
        self._ranks_ns: float | None = None
        """What DistributedDataParallel waited for others in a backward, by its own count."""
        self._thread = get_ident()
        self._started_unix_s, self._started = time.time(), time.perf_counter()
        self._report: RunReport | None = None

    def problem(self, error: BaseException) -> None:
        """Something of ours failed."""
        self._note(f"{type(error).__name__}: {first_line(error)}")

    def _note(self, text: str) -> None:
        if text not in self.problems and len(self.problems) < PROBLEMS:
            self.problems.append(text)

    def show(self, module: Any) -> None:
        """A model that need not have been called yet."""
        if id(module) not in self.roots:
            self._new_root(id(module), module)

    def step(self, samples: int) -> None:
        """The script says itself where a step ends; it does from now on."""
        try:
            if not self._by_hand:
                self._by_hand = True
                self._settle()
                self.fold.split = 0
                self.fold.forget()
                self.rounds = 0
            self.samples += samples
            hooks.watch.mark(hooks.watch.base)
            self.fold.split = len(self.fold.phases) - 1
            self.fold.cut()
            self._round()
            self.answer("look", "change")
        except Exception as error:
            self.problem(error)

    def _settle(self) -> None:
        self.settled = self.trains = True
        self.want_batch(self.batch_wanted)

    def want_batch(self, wanted: bool) -> None:
        """Somebody wants to know how large the batches are, or nobody does any more. Any thread."""
        self.batch_wanted = wanted
        self.known = self.roots if self.settled and not wanted else {}

    # What the hooks call: at every call of a model and every step, so what is usual comes first.

    def called(self, module: Any) -> None:
        """A model is called by the script."""
        key = id(module)
        root = self.roots.get(key)
        if root is None:
            root = self._new_root(key, module)
        root.calls += 1
        if self.settled:
            return
        if key in self._stepped:
            self.fold.cut()
            self._stepped.clear()
            self._round()
        self._stepped.add(key)

    def called_with(self, root: CalledModel, frame: Any) -> None:
        """A model is called in this frame, and `batch_wanted`."""
        from devexplorer.core.observe.moment import batch_of  # when somebody asks

        if torch.is_grad_enabled() and not root.beside and not root.bare:
            self.batch = batch_of(frame)

    def backward_ended(self) -> None:
        """Without an optimizer nothing else tells when gradients are there."""
        self.trains = True
        if self.rounds in EARLY_ROUNDS:
            self.weigh()
        self.answer("look")

    def returned(self) -> None:
        """The model is done: a step may end here, or is a long one."""
        if self.settled:
            self.fold.fold()
        else:
            self.fold.split = len(self.fold.phases) - 1
            self.answer("look")
            if not torch.is_grad_enabled():
                self.answer("change")

    def optimizing(self, number: int) -> None:
        """An optimizer begins."""
        if not self._trained:
            self._training_begins()
        stepped = self._stepped
        if number not in stepped or self._by_hand:
            stepped.add(number)
            return
        fold = self.fold
        if fold.split:  # as `fold.cut` and `_round`, whose calls would cost more than what they do
            fold.cuts.append(fold.split)
            fold.split = 0
        if len(stepped) > 1:
            stepped.clear()
            stepped.add(number)
        self.rounds += 1
        if self.fold_soon or self.rounds <= EARLY_FOLDS[-1] or len(fold.phases) > fold.enough:
            self._round_ended()

    def _training_begins(self) -> None:
        if not self.settled:
            self._stepped.clear()
            self.fold.split = 0
            self.fold.forget()
            self.rounds = self.memory.due_ns = 0
        self._trained = True
        self._settle()

    def optimized(self, optimizer: Any, number: int) -> None:
        """An optimizer is done, and that was its first time, memory is due, or something is asked."""
        if number not in self.stepped_with:
            self.stepped_with[number] = weakref.ref(optimizer, lambda _: self.stepped_with.pop(number, None))
            self.optimizer_stack = self.optimizer_stack or stack_of(sys._getframe(1))
            self.weigh()
        elif self.rounds in EARLY_ROUNDS or self.rounds >= self._weighed + WEIGHED_ROUNDS:
            self.weigh()
        if perf_counter_ns() >= self.memory.due_ns:
            self.memory.step_ended(self.rounds)
        if self.asked and not hooks.watch.optimizers:
            self.answer("look")
            if not self._by_hand:
                self.answer("change")

    def answer(self, *moments: When) -> None:
        """Do what windows wait for, if this is the time for it: unseen, and no part of a step."""
        due = [asked for asked in list(self.asked) if asked.when in moments]
        if not due:
            return
        begun, watch = perf_counter_ns(), hooks.watch
        before = watch.inside, watch.silent
        watch.inside = watch.silent = True
        try:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                for asked in due:
                    if self.withdraw(asked):
                        asked.answer()
        except Exception as error:
            self.problem(error)
        finally:
            watch.inside, watch.silent = before
            self.fold.leave_out(begun, perf_counter_ns())

    def withdraw(self, asked: Awaited) -> bool:
        """It is not waited for any more. Whether it had not begun. Any thread."""
        try:
            self.asked.remove(asked)
        except ValueError:
            return False
        return True

    def _round(self) -> None:
        self.rounds += 1
        if not self._trained:
            if perf_counter_ns() >= self.memory.due_ns:
                self.memory.step_ended(self.rounds)
            if self.rounds in EARLY_ROUNDS:
                self.weigh()
        self._round_ended()

    def _round_ended(self) -> None:
        fold = self.fold
        if self.rounds in EARLY_FOLDS or self.fold_soon or len(fold.phases) > fold.enough:
            now = perf_counter_ns()
            # It may have been stopped just now, and nobody has said so yet: then a little later.
            self.fold_soon = self.stops_seen_ns > 0 and now - self.stops_seen_ns > UNSEEN_NS
            if self.fold_soon and len(fold.phases) < 2 * LONG_STEP_MARKS:
                return
            fold.fold()
            if self.settings.places and not (self.places and self.places.rests):
                self._look_at_places()
            fold.leave_out(now, perf_counter_ns())

    def _look_at_places(self) -> None:
        times, _ = self.fold.counts()
        total = sum(times.counted)
        if self.fold.steps < 4 or not total:
            return
        looked_at = times.counted[REST] + times.counted[READ]
        looked_at += self.fold.clock.own * (times.counted[FORWARD] + times.counted[EVALUATION])
        rests = looked_at > REST_SHARE * total
        if self.places is None:
            self.places = RestPlaces(self)
        elif not rests:
            return
        self.places.rests = rests
        self.places.start()

    def _new_root(self, key: int, module: Any) -> CalledModel:
        frame = sys._getframe(1)
        stack = stack_of(frame)
        if torch.is_grad_enabled():  # a check before the training, say, is not where a step calls it
            self.forward_stack = self.forward_stack or stack
        place = line_text(*_calling_line(frame, stack))
        kind = type(module)
        root = CalledModel(None, kind.__name__, place)
        root.bare = hooks.first_parameter(module) is None
        root.beside = kind.__module__.startswith(NO_MODELS)
        root.ref = weakref.ref(module, lambda _: self._forget_root(key))
        known = [each for each in (*self.roots.values(), *self._gone.values()) if each.weight is not None]
        root.inner = any(key in each.weight.modules for each in known if each.weight is not None)
        if not any((each.name, each.place) == (root.name, root.place) for each in known):
            self._weigh_root(root, module, [])  # it may be gone before the next weighing
        self.roots[key] = root
        self._choose_clock()
        whole = whole_of(module, frame)
        if whole is not None:
            self.show(whole)
            self.roots[id(whole)].place = place
        return root

    def _forget_root(self, key: int) -> None:
        """A model is gone; how often those of its class and place were called is kept."""
        root = self.roots.pop(key, None)
        if root is None or root.inner:
            return
        kept = self._gone.setdefault((root.name, root.place), root)
        if kept is not root:
            kept.calls += root.calls
            kept.weight = root.weight or kept.weight
        if len(self._gone) > LONGEST_LIST:
            del self._gone[next(iter(self._gone))]

    def _choose_clock(self) -> None:
        """Cards can come, and CUDA begin, at any time before the first model is called."""
        if not isinstance(self.fold.clock, HostClock):
            return
        machine = virtual_machine()
        if machine is not None:
            clock: Any = SimulatedClocks(machine)
        elif torch.version.cuda and torch.cuda.is_initialized():
            clock = EventClock(torch.cuda)
        else:
            return
        self.fold.begin(clock)
        hooks.mark_in(self.fold)

    # weighing

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Those that have stepped and are there."""
        found = [ref() for ref in list(self.stepped_with.values())]
        return [optimizer for optimizer in found if optimizer is not None]

    def weigh(self) -> None:
        """Where parameters, gradients and optimizer state are, while they are there."""
        begun = perf_counter_ns()
        optimizers, self._weighed = self.optimizers(), self.rounds
        for root in list(self.roots.values()):
            model = root.ref()
            if model is None:
                continue
            self._weigh_root(root, model, optimizers)
            self._ask_about_ranks(model)
        self.memory.look()
        self.fold.leave_out(begun, perf_counter_ns())

    def _weigh_root(self, root: CalledModel, model: Any, optimizers: list[torch.optim.Optimizer]) -> None:
        if get_ident() != self._thread:  # see `When`
            return
        try:
            with torch._C.DisableTorchFunction():  # classes and modes of the script's would see that we ask
                root.weight = weighed(model, optimizers, root.weight)
        except Exception as error:  # a class of the script's that is no whole tensor; the others are weighed
            self.problem(error)
        if root.weight is not None and root.weight.packed:
            self._note(f"{root.name} has packed weights (quantised), which are not counted")

    def _weigh_last(self) -> None:
        """What was moved elsewhere after the last step, to be saved, say, is told as it was before."""
        before = [(root, root.weight) for root in self.roots.values()]
        self.weigh()
        for root, weight in before:
            if weight is not None and root.weight is not None and set(weight.devices) != set(root.weight.devices):
                root.weight = weight

    def _ask_about_ranks(self, model: Any) -> None:
        """DistributedDataParallel adds gradients up in C++, within backward; it keeps count of that by itself."""
        if not isinstance(model, nn.parallel.DistributedDataParallel):
            return
        try:
            figures = model._get_ddp_logging_data()
            waited = figures.get("avg_backward_comm_time", 0) - figures.get("avg_backward_compute_comm_overlap_time", 0)
        except Exception:  # a process group that is gone
            return
        if waited > 0:
            self._ranks_ns = float(waited)

    # the end

    def finish(self) -> RunReport:
        """Look no more, and say what was seen. A second time: the same."""
        if self._report is None:
            seconds = time.perf_counter() - self._started
            try:
                hooks.watch.end()
                self._weigh_last()
                if self.places is not None:
                    self.places.stop()
                self.fold.finish()
            except Exception as error:
                self.problem(error)
            try:
                self._report = self._reported(seconds)
            except Exception as error:
                self.problem(error)
                self._report = self._made(seconds, (), RunEvidence())
            _current.clear()
        return self._report

    def _reported(self, seconds: float) -> RunReport:
        times, rows = self.fold.counts()
        if self._ranks_ns is not None:
            move_waiting(times, rows, self._ranks_ns)
        total = times.counted.sum()
        clocks = self.fold.clock.name != "cpu"
        phases = []
        for number, name in enumerate(NAMES):
            if not times.host[number] and not times.counted[number]:
                continue
            phases.append(
                PhaseTime(
                    name=name,
                    seconds=float(times.host[number]) / 1e9,
                    device_seconds=float(times.counted[number]) / 1e9 if clocks else None,
                    share=float(times.counted[number] / total) if total else 0.0,
                    median_seconds=float(np.median(rows[:, number])) / 1e9 if len(rows) else 0.0,
                    parts=_medians(rows[:, number]),
                )
            )
        evidence, called = self._evidence(times, rows), largest_first(self.roots, self._gone)
        evidence.models = observed_models(called, self.roots)
        evidence.parameters = parameter_places(called)
        return self._made(seconds, tuple(phases), evidence, _medians(rows.sum(1)))

    def _evidence(self, times: StepTimes, rows: Any) -> RunEvidence:
        return RunEvidence(
            times=times,
            steps=self.fold.steps,
            step_seconds=float(np.median(rows.sum(1))) / 1e9 if len(rows) else None,
            rests=self.places.found if self.places is not None else Counter(),
            within=self.places.within if self.places is not None else Counter(),
            phases=self.places.phases if self.places is not None else Counter(),
            growth=self.memory.growth(),
            simulated=self.fold.clock.name == "simulated",
            host_reads=hooks.watch.host_reads,
            training=self._trained,
            launches=self.fold.clock.launches,
            own=self.fold.clock.own,
        )

    def _made(
        self,
        seconds: float,
        phases: tuple[PhaseTime, ...],
        evidence: RunEvidence,
        step_parts: tuple[float, ...] = (),
    ) -> RunReport:
        rank, ranks = _ranks()
        return RunReport(
            script=self.settings.script,
            arguments=self.settings.arguments,
            python=platform.python_version(),
            torch=str(torch.__version__),
            started_unix_s=self._started_unix_s,
            seconds=seconds,
            steps=self.fold.steps,
            samples=self.samples,
            steps_counted=evidence.times.steps,
            training=self._trained,
            clock=self.fold.clock.name,
            models=evidence.models,
            parameters=evidence.parameters,
            phases=phases,
            step_median_seconds=evidence.step_seconds,
            step_parts=step_parts,
            memory=self.memory.devices(),
            verdict=judge(evidence),
            problems=tuple(self.problems),
            rank=rank,
            ranks=ranks,
            stopped=dict(self.stopped),
        )

    def progress(self) -> RunProgress:
        """How far it was when steps were summed up last; `fold_soon` asks for that. The thread that looks."""
        fold = self.fold
        counted = tuple((fold.warm_up.counted + fold.total.counted).tolist())
        return RunProgress(fold.summed_s, fold.steps, counted, fold.clock.name, judge(self._evidence(*fold.counts())))

    def models(self) -> list[Any]:
        """Those that the script calls itself and that are there. Any thread."""
        found = []
        for root in list(self.roots.values()):
            model = root.ref()
            if model is not None and any(True for _ in nn.Module.parameters(model)):
                found.append(model)
        parts = {id(part) for model in found for part in nn.Module.modules(model) if part is not model}
        return [model for model in found if id(model) not in parts]


def _calling_line(frame: Any, stack: Stack) -> tuple[Any, int]:
    """The script's own line; where none of its lines is on the stack, the one of what calls torch."""
    for code, line in reversed(stack):
        if is_own(code.co_filename):
            return code, line
    code = hooks.caller(frame).f_code
    line = next((line for each, line in reversed(stack) if each is code), code.co_firstlineno)
    return code, line


def _medians(values: Any) -> tuple[float, ...]:
    """Seconds: the medians of consecutive parts of the run."""
    return tuple(float(np.median(part)) / 1e9 for part in np.array_split(values, PARTS) if len(part))


def _ranks() -> tuple[int | None, int | None]:
    """The rank of this process and how many there are; as torchrun says it where the group is gone already."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    rank, ranks = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if rank.isdecimal() and ranks.isdecimal():
        return int(rank), int(ranks)
    return None, None


_current: list[Observation] = []


def start(settings: ObserveSettings) -> Observation:
    """Look at this process from now on, on the calling thread. While a run is looked at: that one, unchanged."""
    if not _current:
        observation = Observation(settings)
        try:
            hooks.install()
            hooks.watch.begin(observation)
        except Exception as error:
            observation.problem(error)
        _current.append(observation)
    return _current[0]
