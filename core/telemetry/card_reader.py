"""Reads one card: quick fields every time, the others when they are due. One sampler thread at a time."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from devexplorer.core.base import Clock
from devexplorer.core.base.time_limit import AbandonedError
from devexplorer.core.devices.catalog import uuid_bytes
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.devices.nvml_card import Card
from devexplorer.core.records import DeviceDetails, DeviceSample, EventSink

SLOW_INTERVAL_S = 2.0
"""Between two readings of processes, limits, PCIe, NVLink, errors."""
DETAILS_INTERVAL_S = 30.0
"""Between two readings of `DeviceDetails`."""
TURNS = 8
"""Cards take turns with what is read seldom, so that not all of it falls into one tick: the interval has so many
parts."""


def next_due(due: float, now: float, interval_s: float) -> float:
    """The first tick of the cadence after `now`: missed ticks are skipped, not made up for, and none drifts."""
    missed = max(int((now - due) // interval_s), 0)
    return due + (missed + 1) * interval_s


class Schedule(msgspec.Struct):
    """When what is read, and what a sample is stamped with. One for all cards; the intervals may be changed at any
    time."""

    clock: Clock
    """Seconds, monotonic."""
    unix_clock: Clock
    slow_interval_s: float = SLOW_INTERVAL_S
    details_interval_s: float = DETAILS_INTERVAL_S
    details: bool = True
    """Whether they are wanted."""


class CardReader:
    """A card, and the jobs that read it. It has one job at a time: `claim` it, then let a thread do `tick` or `answer`.

    `name(reader)` is the card's current id, None when its readings are not wanted. What is read goes to `put`.
    """

    def __init__(
        self,
        card: Card,
        nvml: Nvml,
        put: EventSink,
        name: Callable[[CardReader], str | None],
        pace: Schedule,
    ) -> None:
        self.card = card
        """Replaced by the listing when it says something else."""
        self.uuid = uuid_bytes(card.uuid)
        self.busy_since: float | None = None
        """When it was claimed; None: it is idle."""
        self.unread = False
        """Whether it is claimed and no thread has begun."""
        self.stuck = False
        """Whether it has not come back from a call in time."""
        self._took_s = 0.0
        """The last job that read the slow fields, too."""
        self.ended = False
        """Whether the card is gone; later results are dropped."""
        self.again: Callable[[], None] | None = None
        """The current job, which another thread restarts when a call hangs."""
        self.last: DeviceSample | None = None
        """The newest reading."""
        self._nvml = nvml
        self._put = put
        self._name = name
        self._pace = pace
        self._slow: DeviceSample | None = None
        self._slow_due = 0.0
        self._details: DeviceDetails | None = None
        self._details_due = 0.0
        self._details_of: Card | None = None

    def claim(self) -> bool:
        """Mark it as busy; False if it is still busy, gone, or not wanted. One thread claims."""
        if self.busy_since is not None or self.ended or self._name(self) is None:
            return False
        self.busy_since = self._pace.clock()
        self.unread = True
        return True

    def is_slow(self, seconds: float) -> bool:
        """Whether a reading of everything takes longer than this, the last one or the present one."""
        since = self.busy_since
        return self._took_s >= seconds or (since is not None and self._pace.clock() - since >= seconds)

    def give_up(self, limit_s: float) -> bool:
        """Abandon a call that takes longer than `limit_s`. True: another thread has to run `again`."""
        return self.busy_since is not None and not self.unread and self._nvml.give_up(self.card, limit_s=limit_s)

    def lose_patience(self) -> bool:
        """Mark it as stuck if it does not answer; False if it answers or was already marked."""
        self.stuck, known = self.busy_since is not None, self.stuck
        return self.stuck and not known

    def tick(self, add: Callable[[list[Callable[[], None]]], None]) -> None:
        """Read and put the quick fields; other fields that are due become a later job, so that other cards do not
        wait."""
        self.unread = False
        if not self._finished(self._read_and_put):
            return
        now = self._pace.clock()
        if self._slow is None or now >= self._slow_due or self._details_are_due(now):
            self.again = self._read_the_rest
            add([self._read_the_rest])
        else:
            self._release()

    def answer(self, reply: Callable[[CardReader], None]) -> None:
        """Read everything that is due and tell `reply`; `last` has the sample then."""
        self.unread = False
        if self._finished(self._read_slow, self._read, self._read_details):
            self._release()
            reply(self)

    def _finished(self, *steps: Callable[[], object]) -> bool:
        """Do the steps of a job; False where it was abandoned and another thread does it now."""
        try:
            for step in steps:
                step()
        except AbandonedError:
            return False
        except BaseException:  # a card that stays claimed would never be read again
            self._release()
            raise
        return True

    def _release(self) -> None:
        self.stuck = False
        self.again = None
        self.busy_since = None

    def _device(self) -> str:
        return self._name(self) or self.card.nvml_id

    def _read(self) -> DeviceSample:
        self.last = self._nvml.read(
            self.card, device=self._device(), time_unix_s=self._pace.unix_clock(), slow=self._slow
        )
        return self.last

    def _read_and_put(self) -> None:
        sample = self._read()
        if not self.stuck and not self.ended:  # a late one would come before the gap that was put in its place
            self._put(sample)

    def _read_the_rest(self) -> None:
        if self._finished(self._read_slow, self._read_details):
            self._release()

    def _read_slow(self) -> None:
        now, interval_s = self._pace.clock(), self._pace.slow_interval_s
        if self._slow is None:
            self._slow_due = now + interval_s * (1 + self._turn)
        elif now >= self._slow_due:
            self._slow_due = next_due(self._slow_due, now, interval_s)
        else:
            return
        self._slow = self._nvml.read_slow(self.card)
        self._took_s = self._pace.clock() - now

    def _details_are_due(self, now: float) -> bool:
        known = self._details
        if not self._pace.details:
            return False
        return (
            known is None
            or now >= self._details_due
            or self._details_of is not self.card
            or known.device != self._device()
        )

    def _read_details(self) -> None:
        """Read them when they are due or the card became another; only say them again under a new name."""
        card, device, known, now = self.card, self._device(), self._details, self._pace.clock()
        if not self._details_are_due(now):
            return
        if known is not None and now < self._details_due and self._details_of is card:
            details = msgspec.structs.replace(known, device=device)
        else:
            details = self._nvml.read_details(card, device=device, time_unix_s=self._pace.unix_clock())
            self._details_due = now + self._pace.details_interval_s * (1 if known else 1 + self._turn)
        self._details, self._details_of = details, card
        if not self.ended:
            self._put(details)

    @property
    def _turn(self) -> float:
        """Part of an interval by which this card is later than the first."""
        return self.card.index % TURNS / TURNS
