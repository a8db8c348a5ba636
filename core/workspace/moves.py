"""Moves tensors and models between devices, all or none: plan, check the fit, copy, commit, or roll back. Runs on
the jobs thread.

Every original is kept until all parts have arrived (undoing by moving back would lose bits after a cast), so the peak
is source plus destination, as on a real move between two devices."""

from __future__ import annotations

import copy as deep
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from devexplorer.core.models import deep_copy, device_id, dtype_name, loses, model_dtype, no_collections, torch_dtype
from devexplorer.core.models.walk import cut_computed
from devexplorer.core.records import CastError, MoveReport
from devexplorer.core.virtual.torch_api.lazy import move_uninitialised
from devexplorer.core.workspace.parts import (
    DEVICE_PIECE_BYTES,
    Bind,
    Copy,
    LazyPart,
    NamePart,
    ParameterPart,
    Part,
    pieces_together,
    plain_copy,
    renew_flat_weights,
)
from devexplorer.core.workspace.placement import Target
from devexplorer.core.workspace.plan import Plan, TensorOrigin, bind_nothing, check_sizes, to_origins, uniform
from devexplorer.core.workspace.runs import Timing

# Measures what a cast did to the values: change, overflow, underflow, NaN; in pieces, on the originals' device. Jobs
# thread.
# A piece is part of a large tensor, or many small tensors in a row: each operation costs microseconds, however few
# the elements are.

HOST_PIECE = 1 << 15
"""Elements of a piece on the CPU: a dozen temporaries of this size stay in the cache, and the allocator keeps them at
hand."""
SMALL = 1 << 12
"""Elements up to which tensors are looked at together: here the operations cost more than the work that they do."""


class _Error(NamedTuple):
    changed: int
    overflowed: int
    underflowed: int
    nans: int
    largest: float
    relative: float


class _Cast(NamedTuple):
    """A tensor before and after; the two may be on different devices."""

    path: str
    old: Tensor
    new: Tensor


def measure_cast_error(parts: Iterable[Part]) -> CastError | None:
    """The error of the casts among these parts, once the move is over; None when none of them can lose anything."""
    try:
        with torch.no_grad():
            errors = list(_errors(_casts(parts)))
    # no memory, or an operation or a dtype that the device lacks; the move itself succeeded
    except (RuntimeError, TypeError, MemoryError):
        return None
    if not errors:
        return None
    worst, _ = max(errors, key=lambda item: (item[1].overflowed + item[1].nans, item[1].relative))
    changed, overflowed, underflowed, nans, largest, relative = zip(*(error for _, error in errors), strict=True)
    return CastError(
        elements=sum(cast.old.numel() for cast, _ in errors),
        changed=sum(changed),
        largest_change=max(largest),
        largest_relative_change=max(relative),
        overflowed=sum(overflowed),
        underflowed=sum(underflowed),
        nans=sum(nans),
        worst=worst.path,
    )


def _casts(parts: Iterable[Part]) -> Iterator[_Cast]:
    """The casts that can lose something."""
    for part in parts:
        if isinstance(part, LazyPart) or part.new is None or part.wanted.kept is not None:
            continue
        # The contents before and after, whether the part was committed (to move something) or not (to copy it).
        old, new = part.tensor, part.new
        if isinstance(part, ParameterPart) and part.old is not None:
            old, new = part.old, part.tensor
        if loses(old.dtype, new.dtype):
            yield _Cast("" if isinstance(part, NamePart) else part.path, old, new)


def _errors(casts: Iterable[_Cast]) -> Iterator[tuple[_Cast, _Error]]:
    """The error of each cast: large tensors first, then the small ones, many at once."""
    small: dict[tuple[torch.device, torch.dtype, torch.device, torch.dtype], list[_Cast]] = {}
    for cast in casts:
        old, new = cast.old, cast.new
        if old.numel() > SMALL or old.is_complex():
            yield cast, error_between(old, new)
        else:
            small.setdefault((old.device, old.dtype, new.device, new.dtype), []).append(cast)
    for alike in small.values():
        for run in _runs(alike):
            yield from zip(run, errors_between([cast.old for cast in run], [cast.new for cast in run]), strict=True)


def _runs(casts: Sequence[_Cast]) -> Iterator[list[_Cast]]:
    """Cut into runs that make up a piece together."""
    limit = _limit(casts[0].old, casts[0].new)
    run: list[_Cast] = []
    elements = 0
    for cast in casts:
        elements += cast.old.numel()
        if elements > limit and run:
            yield run
            run, elements = [], cast.old.numel()
        run.append(cast)
    yield run


def _limit(old: Tensor, new: Tensor) -> int:
    """Elements of a piece."""
    on_host = old.device.type == new.device.type == "cpu"
    return HOST_PIECE if on_host else DEVICE_PIECE_BYTES // max(old.element_size(), new.element_size())


def error_between(old: Tensor, new: Tensor) -> _Error:
    """The error of one tensor; the two may be on different devices."""
    counts: list[Tensor] = []
    changes: list[Tensor] = []
    for a, b in pieces_together((old, new), _limit(old, new)):
        flags, differences = _by_element(a, b.to(a.device))
        counts.append(torch.stack([flag.sum() for flag in flags]))
        changes.append(torch.stack([difference.amax() for difference in differences]))
    if not counts:
        return _Error(0, 0, 0, 0, 0.0, 0.0)
    return _Error(*torch.stack(counts).sum(0).tolist(), *torch.stack(changes).amax(0).tolist())


def errors_between(olds: Sequence[Tensor], news: Sequence[Tensor]) -> list[_Error]:
    """The same for several tensors, at about the cost of one: real ones; all old ones share device and dtype, as do all
    new ones."""
    if len(olds) == 1:
        return [error_between(olds[0], news[0])]
    old = torch.cat([tensor.flatten() for tensor in olds])
    flags, changes = _by_element(old, torch.cat([tensor.flatten() for tensor in news]).to(old.device))
    owner = torch.repeat_interleave(torch.tensor([tensor.numel() for tensor in olds])).to(old.device)
    count, none = len(olds), torch.zeros(len(olds), dtype=torch.int64, device=old.device)
    sums = [none.index_add(0, owner, flag.to(torch.int64)).tolist() for flag in flags]
    most = [change.new_zeros(count).scatter_reduce(0, owner, change, "amax").tolist() for change in changes]
    return [_Error(*figures) for figures in zip(*sums, *most, strict=True)]


def _by_element(old: Tensor, new: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """What became of each element, in the order of `_Error`: whether it changed, overflowed, underflowed, became NaN;
    and by how much it changed, and by which share of itself."""
    kind = new.dtype
    work = torch.float32 if old.dtype.is_floating_point and old.element_size() <= 4 else torch.float64
    if old.is_complex():
        old = torch.view_as_real(old.resolve_conj()).reshape(-1)
        new = torch.view_as_real(new.resolve_conj()).reshape(-1) if new.is_complex() else new
        work = old.dtype
    x, y = old.to(work), new.to(work)
    sound = x.isfinite()
    nothing = torch.zeros_like(sound)
    if kind.is_floating_point or kind.is_complex:
        overflowed, nans = sound & y.isinf(), y.isnan() & ~x.isnan()
    elif kind == torch.bool:
        overflowed = nans = nothing
    else:
        whole = torch.iinfo(kind)
        overflowed, nans = ~((x > whole.min - 1) & (x < whole.max + 1)), nothing
    both = sound & y.isfinite() & ~overflowed
    change = torch.where(both, (y - x).abs(), 0)
    relative = torch.where(both & (x != 0), change / x.abs(), 0)
    changed = (change != 0) | overflowed | nans
    return ((changed, overflowed, both & (x != 0) & (y == 0), nans), (change, relative))


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
