"""Watches the CPU and every NVIDIA card, ten times a second, from named threads of its own. No torch, no Qt.

    sampler      keeps the time: reads the CPU, has the cards read, notices who does not answer, tells of changes
    sampler-N    read the cards, list them again every 10 s (the first time NVML is started, which can take seconds),
    and ask how they are joined: one thread while the driver is quick, more when it is slow, up to one for each card,
    and always another one when one of them hangs

A call that hangs is given up after `CALL_LIMIT_S`: another thread then reads the card without it.

Quick fields are read every tick; then, every 2 s, what costs more (20 ms for PCIe throughput alone); twice a minute
what seldom changes. A card's curve has a hole only where that takes longer than a tick, and no card waits for
another's. The cadence is counted in monotonic seconds, so that a clock that is set changes nothing in it.

`read_round` has the same threads read everything once (the command line).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import Clock
from devexplorer.core.base.time_limit import AbandonedError, WorkerPool
from devexplorer.core.devices.catalog import uuid_bytes
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.devices.nvml_card import Card
from devexplorer.core.records import DeviceDetails, DeviceSample, Event, EventSink, Problem, Topology

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
        self, card: Card, nvml: Nvml, put: EventSink, name: Callable[[CardReader], str | None], pace: Schedule
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
        if not self._pace.details:
            return False
        known = self._details
        if known is None or now >= self._details_due:
            return True
        return self._details_of is not self.card or known.device != self._device()

    def _read_details(self) -> None:
        """Read them when they are due or the card became another; only say them again under a new name."""
        card, device, known, now = self.card, self._device(), self._details, self._pace.clock()
        if not self._details_are_due(now):
            return
        if known is not None and now < self._details_due and self._details_of is card:
            details = replace(known, device=device)
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


OnCards = Callable[[tuple[Card, ...], tuple[Problem, ...]], None]

PATIENCE_S = 2.0
"""A card that has not come back from one call for this long is reported, and its curve gets a gap. Not the whole of its
reading: sixty calls of 50 ms each, as shared cards have them, are slow and no fault."""
CALL_LIMIT_S = 5.0
"""A call is given up after this time. Longer than the patience, so that answers of a very slow card still count."""
LOOK_S = 0.02
"""Between two looks at the calls while a round waits for answers."""
LIST_INTERVAL_S = 10.0
"""Between two listings of the cards: a card that is plugged in is found within this time."""
NEWS_INTERVAL_S = 0.5
"""Changed problems are told so often at most."""
SLOW_TICKS = 5
"""Slow fields are read at every fifth tick, where ticks are seldom."""
GRACE_S = 0.1
"""A card that waits longer than this for others is read by a thread of its own. As long as a tick of the window, whose
sampler wakes only once in each: that costs more than what it does then."""
FEWER_S = 10.0
"""From the next tick on twice as many threads begin; after so long without a card that waited, half as many."""

_GONE = "it was there and is not any more"


class Sampler:
    """Puts a `DeviceSample` per device and tick: `cpu`, the cards by `set_names`, else as `nvml:N`.

    `DeviceDetails` of a card come when it is found, twice a minute, and again under a new name; one `Topology` of all
    cards comes whenever the cards or their names changed.

    `put` and `on_cards` are called on the sampler's threads and must not wait. `on_cards(cards, problems)` comes once
    NVML was asked (with no cards where there are none), and again whenever one of the two changed. A card that is no
    longer there stays among the cards as a broken one, and as a problem.
    `details`: whether details and topology are wanted; samples are read without them.
    `clock` gives the cadence (seconds, monotonic), `unix_clock` stamps the samples.
    """

    def __init__(
        self,
        put: EventSink,
        nvml: Nvml,
        cpu: CpuReader,
        interval_s: float = 0.1,
        clock: Clock = time.monotonic,
        unix_clock: Clock = time.time,
        on_cards: OnCards | None = None,
        patience_s: float = PATIENCE_S,
        slow_interval_s: float = SLOW_INTERVAL_S,
        details_interval_s: float = DETAILS_INTERVAL_S,
        list_interval_s: float = LIST_INTERVAL_S,
        call_limit_s: float = CALL_LIMIT_S,
        details: bool = True,
    ) -> None:
        self._interval_s = _positive(interval_s)
        self._put_event = put
        self._nvml = nvml
        self._cpu = cpu
        self._clock = clock
        self._unix_clock = unix_clock
        self._on_cards = on_cards
        self._patience_s = patience_s
        self._call_limit_s = call_limit_s
        self._answers_due: set[CardReader] = set()
        """Cards whose answer to a round has not come yet."""
        self._answers: SimpleQueue[CardReader] = SimpleQueue()
        self._list_interval_s = list_interval_s
        self._slow_interval_s = slow_interval_s
        self._pace = Schedule(clock, unix_clock, slow_interval_s, details_interval_s, details)
        self._names: dict[bytes, str] = {}
        self._readers: tuple[CardReader, ...] | None = None
        self._gone: dict[str, Card] = {}
        """Cards that were there, by key."""
        self._joined: tuple[tuple[Card, str], ...] = ()
        """The cards and names that the last topology was about."""
        self._list_due: float | None = None
        self._list_patience_s = patience_s
        """A listing that takes longer is reported."""
        self._listing_since: float | None = None
        """When the listing that has not ended was ordered."""
        self._late_returns = 0
        self._hands, self._fewer_at = 1, math.inf
        """How many threads begin a tick, and when half as many are tried again."""
        self._news_due = 0.0
        self._announced: tuple[tuple[Card, ...], tuple[Problem, ...]] | None = None
        self._crew = WorkerPool("sampler")
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._bell: SimpleQueue[None] = SimpleQueue()
        """Rings for the sampler thread, which otherwise waits for its next tick; twice as quick as an Event."""

    @property
    def opened(self) -> bool:
        """Whether NVML was asked for its cards, successfully or not."""
        return self._readers is not None

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards found, then those that were there and are not any more; none before NVML was asked."""
        result = [reader.card for reader in self._readers or ()]
        taken = {card.index for card in result}
        return (*result, *(card for card in list(self._gone.values()) if card.index not in taken))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What cannot be watched now, and why."""
        result = [*self._cpu.facts.problems, *self._nvml.problems]
        taken = set()
        for reader in self._readers or ():
            taken.add(reader.card.index)
            if reader.stuck:
                inside = self._nvml.inside(reader.card)
                message = "the driver currently does not answer for this card" + (f" ({inside})" if inside else "")
                result.append(Problem(message, device=reader.card.nvml_id))
            elif reader.is_slow(self._patience_s):
                message = f"the driver is slow: one reading of this card takes more than {self._patience_s:g} s"
                result.append(Problem(message, device=reader.card.nvml_id, field="readings"))  # not the whole card
        for card in list(self._gone.values()):
            result.append(
                Problem(f"{card.name} ({card.key}): {_GONE}", device=None if card.index in taken else card.nvml_id)
            )
        if self._listing_is_late():
            result.append(Problem("the NVIDIA driver has not answered the query for its cards yet", field="nvml"))
        return tuple(result)

    def set_names(self, names: Mapping[str, str]) -> None:
        """UUID -> device id, as torch numbers them (`Catalog.names`); cards left out stay `nvml:N`. Any thread.

        Details and topology come again under the new names.
        """
        known = {key: device for text, device in names.items() if (key := uuid_bytes(text)) is not None}
        if known != self._names:
            self._names = known
            self._list_due = None

    def set_interval(self, interval_s: float) -> None:
        """Tick so often from now on, less often while the window is hidden, say; slow fields then come every
        `SLOW_TICKS` ticks. Any thread."""
        self._interval_s = _positive(interval_s)
        self._pace.slow_interval_s = max(self._slow_interval_s, SLOW_TICKS * interval_s)
        self._bell.put(None)

    def start(self) -> None:
        """Start the threads; returns at once."""
        if self._thread is not None:
            raise RuntimeError("the sampler is already running")
        self._thread = threading.Thread(target=self._loop, name="sampler", daemon=True)
        self._thread.start()

    def stop(self, deadline_s: float = 1.0) -> bool:
        """Stop within the deadline and close NVML; False when a thread is stuck in the driver and was left behind.

        A thread that is left behind is a daemon: it keeps nothing alive and does nothing more when its call returns.
        """
        self._stop.set()
        self._bell.put(None)
        until = time.monotonic() + deadline_s
        if self._thread is not None:
            self._thread.join(deadline_s)
        ended = self._crew.end(until - time.monotonic())
        if not ended or (self._thread is not None and self._thread.is_alive()):
            return False  # shutting NVML down while a call is in it would block as well, or crash
        return self._nvml.close()

    def read_round(self, patience_s: float = PATIENCE_S, list_patience_s: float | None = None) -> list[DeviceSample]:
        """Read everything once, all cards in parallel: the CPU's sample, then each card's in NVML's order.

        A card that does not answer within `patience_s` has its last reading, which its time tells. Its first one is
        waited for as long as its calls come back; when one does not, the card has a sample with device and time only.
        What it answers later is the next round's. Lists the cards first where they are not listed yet, and again, for
        the next round, when it is time; the first listing has `list_patience_s`. Details and topology go to `put`.
        Raises RuntimeError when the sampler runs by itself.
        """
        if self._thread is not None:
            raise RuntimeError("the sampler runs by itself: its samples come by `put`")
        listed = threading.Event()
        self._list_patience_s = patience_s if list_patience_s is None else list_patience_s
        if self._list_if_due(listed) and not self.opened:
            listed.wait(self._list_patience_s)
        until = time.monotonic() + patience_s
        readers = [reader for reader in self._readers or () if self._name(reader) is not None]
        claimed = [reader for reader in readers if reader.claim()]
        for reader in claimed:
            reader.again = partial(reader.answer, self._answers.put)
        self._answers_due.update(claimed)
        self._crew.add(reader.again for reader in claimed if reader.again is not None)
        self._crew.call(len(claimed))
        samples = [self._cpu.read(self._unix_clock())]
        self._await_answers(until)
        for reader in readers:
            if reader in self._answers_due and self._hangs(reader):
                reader.lose_patience()
            sample = reader.last
            device = self._name(reader) or reader.card.nvml_id
            if sample is None:
                sample = DeviceSample(device=device, time_unix_s=self._unix_clock())
            samples.append(sample if sample.device == device else replace(sample, device=device))
        self._tell_news()
        return samples

    def latest(self) -> list[DeviceSample]:
        """The last reading of each card that has one."""
        return [reader.last for reader in self._readers or () if reader.last is not None]

    def _await_answers(self, until: float) -> None:
        """Until every card that was asked has answered, in this round or an earlier one, or until then (monotonic
        seconds) and what is left hangs or has been read before."""
        while self._answers_due:
            left = until - time.monotonic()
            try:
                self._answers_due.discard(self._answers.get(timeout=min(max(left, 0), LOOK_S)))
            except Empty:
                if left <= 0 and all(reader.last or self._hangs(reader) for reader in self._answers_due):
                    break
                self._give_up_calls()
        self._give_up_calls()

    def _hangs(self, reader: CardReader) -> bool:
        """Whether its present call takes longer than the patience."""
        return self._nvml.waited_s(reader.card) >= self._patience_s

    def _give_up_calls(self) -> None:
        """Have the cards read by other threads whose call takes too long."""
        for reader in self._readers or ():
            if reader.give_up(self._call_limit_s) and reader.again is not None:
                self._crew.add([reader.again])
                self._crew.call(1)

    def tick(self) -> None:
        """`read_round`, and put what it read."""
        for sample in self.read_round(self._patience_s):
            self._put(sample)

    # --- the sampler thread ------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        due = self._clock()
        while not self._stop.is_set():
            self._put(self._cpu.read(self._unix_clock()))
            now = self._clock()
            for reader in self._readers or ():
                if reader.busy_since is not None and self._hangs(reader) and reader.lose_patience():
                    self._put_gap(reader)
            self._give_up_calls()
            if now >= self._news_due and (self.opened or self._listing_is_late()):
                self._news_due = now + NEWS_INTERVAL_S
                self._tell_news()
            self._list_if_due()
            # last: from here on this thread sleeps, and they have the interpreter for themselves
            self._have_cards_read()
            due = next_due(due, now, self._interval_s)
            rung = self._rings_within(min(due - now, GRACE_S))
            if not rung:
                self._help_out()
                rung = self._rings_within(max(due - self._clock(), 0))
            if rung:
                due = self._clock()  # the interval changed: the cadence begins here

    def _rings_within(self, seconds: float) -> bool:
        try:
            self._bell.get(timeout=seconds)
        except Empty:
            return False
        return True

    def _have_cards_read(self) -> None:
        claimed = [reader for reader in self._readers or () if reader.claim()]
        if claimed:
            for reader in claimed:
                reader.again = partial(reader.tick, self._crew.add)
            self._crew.add(reader.again for reader in claimed if reader.again is not None)
            if self._clock() >= self._fewer_at:
                self._begin_with(self._hands // 2)
            self._crew.call(min(self._hands, len(claimed)))

    def _begin_with(self, hands: int) -> None:
        self._hands = max(min(hands, len(self._readers or ())), 1)
        self._fewer_at = self._clock() + FEWER_S if self._hands > 1 else math.inf

    def _help_out(self) -> None:
        """Another thread for each job that still waits for one to begin it."""
        waiting = self._crew.waiting
        if waiting:
            if any(reader.unread for reader in self._readers or ()):
                self._begin_with(2 * self._hands)
            self._crew.call(waiting)

    def _list_if_due(self, done: threading.Event | None = None) -> bool:
        """Have the cards listed when it is time and the last listing has ended; whether that was ordered."""
        now = self._clock()
        late_returns, self._late_returns = self._late_returns, self._nvml.late_returns
        if late_returns != self._late_returns:
            self._list_due = None  # a call that hung has returned: what it was about can be asked again
        if self._listing_since is not None or (self._list_due is not None and now < self._list_due):
            return False
        self._list_due = now + self._list_interval_s
        self._listing_since = now
        self._crew.add([partial(self._list, done)])
        self._crew.call(1)
        return True

    def _listing_is_late(self) -> bool:
        since = self._listing_since
        return since is not None and self._clock() - since >= self._list_patience_s

    def _tell_news(self) -> None:
        result = (self.cards, self.problems)
        if result != self._announced:
            self._announced = result
            if self._on_cards is not None:
                self._on_cards(*result)

    def _put(self, event: Event) -> None:
        """Nothing comes after the stop, from whatever thread."""
        if not self._stop.is_set():
            self._put_event(event)

    def _put_gap(self, reader: CardReader) -> None:
        device = self._name(reader)
        if device is not None:
            self._put(DeviceSample(device=device, time_unix_s=self._unix_clock()))

    def _name(self, reader: CardReader) -> str | None:
        """The id under which a card is sampled; None for a MIG instance that torch does not use."""
        name = self._names.get(reader.uuid) if reader.uuid is not None else None
        if name is None and reader.card.mig_instance is None:
            return reader.card.nvml_id
        return name

    # --- the listing ------------------------------------------------------------------------------------------

    def _list(self, done: threading.Event | None) -> None:
        """Compare what NVML lists with what is known, and ask how the cards are joined."""
        try:
            if not self._readers:
                # tried again with every listing: drivers are installed and loaded while the window is open
                self._nvml.start()
            cards = self._nvml.cards()
            if not self._stop.is_set():
                self._take(cards)
                if self._pace.details:
                    self._join()
        finally:  # whatever went wrong, the next listing is due in its time
            self._listing_since = None
            if done is not None:
                done.set()

    def _take(self, cards: Sequence[Card]) -> None:
        """Keep the readers of cards that are still there, begin those of new ones, end those of the others."""
        before = {reader.card.key: reader for reader in self._readers or ()}
        readers: list[CardReader] = []
        for card in cards:
            reader = before.pop(card.key, None)
            if reader is None:
                reader = CardReader(card, self._nvml, self._put, self._name, self._pace)
            elif reader.card != card:
                reader.card = card
            self._gone.pop(card.key, None)
            readers.append(reader)
        for reader in before.values():
            reader.ended = True
            self._put_gap(reader)
            card = reader.card
            # instances come and go; without a UUID it may be one of the others
            if card.mig_instance is None and card.uuid is not None:
                self._gone[card.key] = replace(card, broken=_GONE)
        self._readers = tuple(readers)

    def _join(self) -> None:
        """A topology when the cards or their names are others than last time."""
        whole = [
            reader for reader in self._readers or () if reader.card.mig_instance is None and reader.card.broken is None
        ]
        joined = tuple((reader.card, self._name(reader) or reader.card.nvml_id) for reader in whole)
        if joined != self._joined:
            cards, names = tuple(card for card, _ in joined), {card.key: name for card, name in joined}
            topology = self._nvml.topology(cards, names) if cards else Topology(source="nvml")
            self._joined = joined
            self._put(topology)


def _positive(interval_s: float) -> float:
    if not interval_s > 0:
        raise ValueError(f"the interval between two samples is a positive number of seconds, not {interval_s}")
    return interval_s
