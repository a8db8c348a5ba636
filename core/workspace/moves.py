"""Moves tensors and models between devices, all or none: plan, check the fit, copy, commit, or roll back. Runs on
the jobs thread.

Every original is kept until all parts have arrived (undoing by moving back would lose bits after a cast), so the peak
is source plus destination, as on a real move between two devices.
"""

from __future__ import annotations

import copy as deep
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import methodcaller
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.base import (
    NO_PROGRESS,
    Cancelled,
    Clock,
    DevExplorerError,
    MoveFailed,
    ProgressMonitor,
    RollbackFailed,
    first_line,
)
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import deep_copy, device_id, dtype_name, model_dtype, no_collections, torch_dtype
from devexplorer.core.models.computed import cut_computed
from devexplorer.core.records import MoveReport
from devexplorer.core.virtual.torch_api.lazy import move_uninitialised
from devexplorer.core.workspace.cast_error import measure_cast_error
from devexplorer.core.workspace.fit import check_sizes
from devexplorer.core.workspace.parts import Bind, Copy, LazyPart, ParameterPart, Part, plain_copy, renew_flat_weights
from devexplorer.core.workspace.plan import Plan, TensorOrigin, bind_nothing, to_origins, uniform
from devexplorer.core.workspace.targets import Target
from devexplorer.core.workspace.timing import Timing


class Result(NamedTuple):
    """A move that succeeded, and where everything was before it."""

    report: MoveReport
    origins: tuple[TensorOrigin, ...]
    rollback: Callable[[], None]
    """Puts the very same tensors back; they are kept alive by it."""


class Mover:
    """Carries out moves on the devices of a registry. Tests replace `copy` and `commit` to make them fail."""

    def __init__(
        self,
        registry: DeviceRegistry,
        *,
        copy: Copy = plain_copy,
        commit: Callable[[Part], None] = methodcaller("commit"),
        wall: Clock = time.perf_counter,
    ) -> None:
        self._registry = registry
        self._copy, self._commit, self._wall = copy, commit, wall

    @no_collections()
    def move(
        self,
        targets: Sequence[Target],
        device: str,
        dtype: str | None,
        bind: Bind = bind_nothing,
        progress: ProgressMonitor = NO_PROGRESS,
        around: Sequence[Target] = (),
    ) -> Result:
        """Move the targets to one device, or cast them where they are (`device` empty): models in place, tensors by
        binding their names to the results.

        `around` are the whole objects that the targets belong to, and others that share tensors with them: what is tied
        there follows. Raises `DoesNotFit` or `BadInput` before anything changes, `MoveFailed` after everything was put
        back.
        """
        goal = torch.device(device) if device else None
        plan = Plan(uniform(goal, wanted_dtype(targets, dtype)), targets, around=around, bind=bind)
        return self._carry_out(plan, targets, device, dtype, progress)

    @no_collections()
    def restore(
        self,
        targets: Sequence[Target],
        origins: Iterable[TensorOrigin],
        bind: Bind = bind_nothing,
        progress: ProgressMonitor = NO_PROGRESS,
        around: Sequence[Target] = (),
    ) -> Result:
        """Move every tensor back to where `origins` says that it was; the report names several devices with
        commas."""
        origins = tuple(origins)
        places = ", ".join(sorted({device_id(entry.device) for entry in origins}))
        plan = Plan(to_origins(origins), targets, around=around, bind=bind)
        return self._carry_out(plan, targets, places, None, progress)

    def duplicate(
        self, targets: Sequence[Target], device: str, dtype: str | None, progress: ProgressMonitor = NO_PROGRESS
    ) -> tuple[MoveReport, list[nn.Module | Tensor]]:
        """Make a second object of each target on the device; the originals are left as they are, gradients are not
        copied."""
        plan = Plan(uniform(torch.device(device), wanted_dtype(targets, dtype)), targets, second=True)
        self._check_fit(plan)
        try:
            timing = self._start(plan)
            self._copy_all(plan, progress, _always_new(self._copy))
            made = _second_objects(plan, targets)
            report = self._report(plan, targets, device, dtype, timing)
        except BaseException as error:
            for part in plan.parts:
                part.forget()
            if not isinstance(error, Exception):
                raise  # KeyboardInterrupt, SystemExit: it goes on once everything is put back
            raise _failure(error, f"could not copy to {device}", "nothing was created") from error
        return report, made

    def _carry_out(
        self, plan: Plan, targets: Sequence[Target], destination: str, dtype: str | None, progress: ProgressMonitor
    ) -> Result:
        self._check_fit(plan)
        committed = 0
        try:
            timing = self._start(plan)
            self._copy_all(plan, progress, self._copy)
            _forget_weak_references(plan)
            for target in targets:
                if isinstance(target.thing, nn.Module):
                    cut_computed(target.thing)
            commit = self._commit
            for part in plan.parts:
                committed += 1
                commit(part)
            renew_flat_weights(plan.recurrent)
            report = self._report(plan, targets, destination, dtype, timing)  # reads clocks of devices, which can fail
        except BaseException as error:
            stuck = _rolled_back(plan.parts[:committed])
            for part in plan.parts:
                part.forget()
            renew_flat_weights(plan.recurrent)
            if not isinstance(error, Exception):
                raise  # KeyboardInterrupt, SystemExit: it goes on once everything is put back
            what = f"the move to {destination} failed" if destination else f"the cast to {dtype} failed"
            if stuck:
                state = f"{', '.join(stuck)} could not be put back; nothing else has changed"
                raise RollbackFailed(f"{what}: {first_line(error)}; {state}") from error
            raise _failure(error, what, "nothing has changed") from error
        return Result(report, tuple(plan.origins()), partial(_put_back, plan))

    def _check_fit(self, plan: Plan) -> None:
        for device, sizes in plan.sizes.items():
            check_sizes(sizes, device, self._registry, "this copy" if plan.second else "this move")

    def _start(self, plan: Plan) -> Timing:
        return Timing(self._registry, plan.sizes, plan.sources, self._wall)

    def _copy_all(self, plan: Plan, progress: ProgressMonitor, copy: Copy) -> None:
        done = 0
        weights = [*map(_weight, plan.parts)]
        total = max(sum(weights), 1)
        step = max(len(plan.parts) // 1000, 1)
        with torch.no_grad():
            for number, (part, keys, weight) in enumerate(zip(plan.parts, plan.keys, weights, strict=True)):
                if number % step == 0:
                    progress.stop_if_cancelled("nothing has changed")
                    progress.report(done / total, part.path, ":".join(filter(None, keys[0])))
                part.copy(copy)
                done += weight

    def _report(
        self, plan: Plan, targets: Sequence[Target], destination: str, dtype: str | None, timing: Timing
    ) -> MoveReport:
        seconds, wall = timing.stop()
        copied = plan.copied_bytes
        source = tuple(sorted(plan.sources)) or tuple(sorted(plan.before))
        return MoveReport(
            objects=tuple(target.title for target in targets),
            source=source,
            destination=destination or ", ".join(source),
            dtype=None if dtype is None else dtype_name(torch_dtype(dtype)),
            parameters=plan.parameters,
            buffers=plan.buffers,
            gradients=plan.gradients,
            tensors=plan.tensors,
            bytes=copied,
            seconds=seconds,
            wall_seconds=wall,
            gb_per_s=copied / seconds / 1e9 if copied and seconds > 0 else None,
            simulated=timing.simulated,
            copied=plan.second,
            same_object=not plan.second and not plan.tensors,
            already_there=not plan.parts,
            lossy=plan.lossy,
            uninitialised=plan.uninitialised,
            left_behind=tuple(plan.left_behind),
            losses=measure_cast_error(plan.parts) if plan.lossy else None,  # the clock of the move has stopped
            before=dict(sorted(plan.before.items())),
            after=dict(sorted(plan.after.items())),
        )


def _second_objects(plan: Plan, targets: Sequence[Target]) -> list[nn.Module | Tensor]:
    """Copies of the objects around the new tensors: `deepcopy` finds them in its memo, so nothing is allocated
    twice."""
    memo: dict[int, Any] = {}
    for part in plan.parts:
        second: Any = part.new
        if isinstance(part, ParameterPart):
            second = nn.Parameter(second, requires_grad=part.tensor.requires_grad)
        elif isinstance(part, LazyPart):
            second = deep.deepcopy(part.tensor)
            move_uninitialised(second, part.wanted.device, part.wanted.dtype)
        memo[id(part.tensor)] = second
    return [
        memo[id(target.thing)] if isinstance(target.thing, Tensor) else deep_copy(target.thing, memo)
        for target in targets
    ]


def _forget_weak_references(plan: Plan) -> None:
    """Swapping refuses tensors with weak references; LSTM and the like hold some to their own parameters."""
    for module in plan.recurrent:
        module._flat_weight_refs = []


def _put_back(plan: Plan) -> None:
    _forget_weak_references(plan)
    for part in reversed(plan.parts):
        part.rollback()
        part.forget()
    renew_flat_weights(plan.recurrent)


def _rolled_back(parts: Sequence[Part]) -> list[str]:
    """Restore the parts, newest first; returns the paths of those that refuse, for which the others must not stop."""
    stuck = []
    for part in reversed(parts):
        try:
            part.rollback()
        except Exception:
            stuck.append(part.path)
    return stuck


def wanted_dtype(targets: Sequence[Target], dtype: str | None) -> torch.dtype | None:
    """The dtype asked for; models refuse integers."""
    if dtype is None:
        return None
    models = any(isinstance(target.thing, nn.Module) for target in targets)
    return model_dtype(dtype) if models else torch_dtype(dtype)


def _failure(error: Exception, what: str, state: str) -> DevExplorerError:
    if isinstance(error, Cancelled):
        return Cancelled(f"cancelled; {state}")
    reason = str(error) if isinstance(error, DevExplorerError) else first_line(error)
    return MoveFailed(f"{what}: {reason}; {state}")


def _always_new(copy: Copy) -> Copy:
    def second(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
        new = copy(tensor, device, dtype)
        return new.clone() if new is tensor else new

    return second


def _weight(part: Part) -> int:
    return 1 if isinstance(part, LazyPart) else part.tensor.nbytes
