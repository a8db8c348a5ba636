"""Moves tensors and models between devices, all or none: plan, check that it fits, copy, commit, or roll back. Runs on the jobs thread.

Every original is kept until all parts have arrived (undoing by moving back would lose bits after a cast), so the peak is source plus
destination, as on a real move between two devices.
"""

from __future__ import annotations

import contextlib
import copy as deep
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.devices.backend import Fleet
from devexplorer.core.errors import BadInput, DevExplorerError, DoesNotFit, MoveFailed
from devexplorer.core.formats import bytes_text
from devexplorer.core.records.objects import MoveReport
from devexplorer.core.workspace.casts import dtype_name, model_dtype, torch_dtype
from devexplorer.core.workspace.parts import Copy, Part, PlaceLazy, plain_copy
from devexplorer.core.workspace.plan import Aim, Plan, Was, as_before, refuse_dispatched, uniform
from devexplorer.core.workspace.walk import device_id, is_uninitialised

Progress = Callable[[float, str], None]
"""Gets the share that is done, 0 to 1, and what is being done."""
Bind = Callable[[str, Tensor], None]
"""Binds a name of the workspace to a tensor."""


class MoveCancelled(MoveFailed):
    """The move was cancelled; everything is as it was before."""


class Result(NamedTuple):
    """A move that succeeded, and where everything was before it."""

    report: MoveReport
    was: tuple[Was, ...]


class Watch(NamedTuple):
    """What a move tells about itself while it runs, and what it asks."""

    progress: Progress = lambda done, text: None
    cancelled: Callable[[], bool] = lambda: False


class Mover:
    """Carries out moves on the devices of a fleet. `copy` and `commit` are replaced by tests that make them fail."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        copy: Copy = plain_copy,
        commit: Callable[[Part], None] = lambda part: part.commit(),
        place_lazy: PlaceLazy | None = None,
        wall: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._fleet = fleet
        self._copy, self._commit = copy, commit
        self._place_lazy = place_lazy or place_uninitialised
        self._wall = wall

    def move(
        self, aims: Sequence[Aim], device: str, dtype: str | None, bind: Bind, watch: Watch = Watch()  # noqa: B008 (immutable)
    ) -> Result:
        """Move the aims to one device, models in place, tensors by binding their names to the results."""
        plan = Plan(uniform(torch.device(device), _dtype(aims, dtype)), bind, self._place_lazy)
        return self._carry_out(plan, aims, device, dtype, watch)

    def restore(self, aims: Sequence[Aim], was: Iterable[Was], bind: Bind, watch: Watch = Watch()) -> Result:  # noqa: B008
        """Move every tensor back to where `was` says that it was."""
        entries = tuple(was)
        places = sorted({device_id(entry.device) for entry in entries})
        plan = Plan(as_before(entries), bind, self._place_lazy)
        return self._carry_out(plan, aims, ", ".join(places), None, watch)

    def copy(
        self, aims: Sequence[Aim], device: str, dtype: str | None, watch: Watch = Watch()  # noqa: B008
    ) -> tuple[MoveReport, list[nn.Module | Tensor]]:
        """Make a second object of each aim on the device; the originals are left as they are."""
        goal = torch.device(device)
        plan = Plan(uniform(torch.device("meta"), _dtype(aims, dtype)), lambda name, tensor: None, self._place_lazy)
        for aim in aims:  # planned towards meta, so that what is on the device already is counted too: a copy is always made
            plan.add(aim)
        wanted_bytes = [t for sizes in plan.sizes.values() for t in sizes] if False else _copy_sizes(aims, _dtype(aims, dtype))
        self._check_fit({device: wanted_bytes}, "copying")
        simulated = self._simulated([device], plan.sources)
        before, started = self._clocks(simulated), self._wall()
        made: list[nn.Module | Tensor] = []
        try:
            for index, aim in enumerate(aims):
                if watch.cancelled():
                    raise MoveCancelled("the copy was cancelled; nothing was created")
                watch.progress(index / len(aims), f"copying {aim.title}")
                made.append(self._second(aim, goal, _dtype(aims, dtype)))
            self._fleet.backend(device).synchronize(device)
        except DevExplorerError:
            raise
        except Exception as error:
            made.clear()
            raise MoveFailed(f"could not copy to {device}: {one_line(error)}; nothing was created") from error
        wall = self._wall() - started
        report = self._report(plan, aims, device, dtype, wall, self._elapsed(simulated, before))
        return report, made
