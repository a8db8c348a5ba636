"""What comes of one order of a check: taken on the main thread, waited for on the thread of the check."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from devexplorer.core.fleet.check.plan import ONE_BY_ONE
from devexplorer.core.fleet.events import BlocksMeasured, CardKey, GroupEnded, GroupStarted, MeasureOrder
from devexplorer.core.fleet.records import Rates

CANCELLED = "it was cancelled"
"""Why a group has ended that was being measured when the check was."""


class CheckResults:
    """What came of the present order; `wait` on the thread of the check, everything else on the main thread."""

    def __init__(self) -> None:
        self.start_spread_s: float | None = None
        """Between the first and the last start of the last order, if its groups are meant to begin together."""
        self._changed = threading.Condition()
        self._order: MeasureOrder | None = None
        self._blocks: list[list[float]] = []
        self._block_s: list[float | None] = []
        self._done: list[float] = []
        """Share of each group that is measured."""
        self._done_sum = 0.0
        self._groups: dict[CardKey, int] = {}
        """The group of each card; none is in two."""
        self._since_s = 0.0
        self._started: dict[int, float] = {}
        self._ended: dict[int, GroupEnded] = {}

    def expect(self, order: MeasureOrder, gone: Mapping[str, str]) -> None:
        """Another order begins."""
        with self._changed:
            self._order, self._started, self._ended, self._since_s = order, {}, {}, time.monotonic()
            self._groups = {key: index for index, group in enumerate(order.groups) for key in group}
            self._blocks = [[] for _ in order.groups]
            self._block_s = [None for _ in order.groups]
            self._done, self._done_sum = [0.0] * len(order.groups), 0.0
        for machine, why in list(gone.items()):
            self.lose(machine, why)

    def put(self, event: GroupStarted | BlocksMeasured | GroupEnded) -> None:
        """An event of a group; those of earlier orders, and of groups that there are not, are nothing."""
        with self._changed:
            order = self._order
            if order is None or event.number != order.number or not 0 <= event.group < len(order.groups):
                return
            if isinstance(event, GroupStarted):
                self._started.setdefault(event.group, event.time_unix_s)
            elif isinstance(event, GroupEnded):
                self._ended.setdefault(event.group, event)
                self._note_done(event.group, 1.0)
                self._changed.notify()
            elif event.group not in self._ended:
                blocks = self._blocks[event.group]
                blocks += event.rates
                self._block_s[event.group] = event.block_s
                self._note_done(event.group, min(len(blocks) * event.block_s / order.seconds, 1.0))

    @property
    def share(self) -> float:
        """Of the present order that is measured, 0 to 1; of a soak what has passed of its time."""
        with self._changed:
            order = self._order
            if order is None:
                return 0.0
            soaked_s = min(time.monotonic() - self._since_s, order.soak_s)
            measured = self._done_sum / len(self._done) if self._done else 1.0
            return (soaked_s + order.seconds * measured) / (order.soak_s + order.seconds)

    def _note_done(self, group: int, share: float) -> None:
        self._done_sum += share - self._done[group]
        self._done[group] = share

    def runs(self, key: CardKey) -> bool:
        """Whether a card is being measured."""
        with self._changed:
            group = self._groups.get(key)
            return group is not None and group in self._started and group not in self._ended

    def lose(self, machine: str, why: str) -> None:
        """Nothing more comes from this machine."""
        self._end(lambda group: any(name == machine for name, _ in group), why)

    def give_up(self) -> None:
        """Nothing more comes at all."""
        self._end(lambda group: True, CANCELLED)

    def _end(self, concerned: Callable[[tuple[CardKey, ...]], bool], why: str) -> None:
        with self._changed:
            if self._order is None:
                return
            for index, group in enumerate(self._order.groups):
                if index not in self._ended and concerned(group):
                    self._ended[index] = GroupEnded(number=self._order.number, group=index, failure=why)
            self._changed.notify()

    def wait(self) -> list[Rates]:
        """When every group has ended: the rates of each."""
        with self._changed:
            order = self._order
            assert order is not None
            self._changed.wait_for(lambda: len(self._ended) == len(order.groups))
            starts = () if order.kind in ONE_BY_ONE else self._started.values()
            self.start_spread_s = max(starts) - min(starts) if starts else None
            return [
                Rates(
                    kind=order.kind,
                    dtype=order.dtype,
                    blocks=tuple(self._blocks[index]),
                    block_s=self._block_s[index],
                    wrong_values=self._ended[index].verified is False,
                    failure=self._ended[index].failure or None,
                )
                for index in range(len(order.groups))
            ]
