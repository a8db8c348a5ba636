"""Watches the CPU and every NVIDIA card, ten times a second, from named threads of its own. No torch, no Qt.

    sampler          the CPU; announces cards and problems; notices cards that do not answer
    sampler-start    starts NVML and lists the cards (can take seconds), starts the threads below, ends
    sampler-nvml:N   one for each card, so that one that hangs or is lost delays nobody else

`tick` does the work of all of them once, on the calling thread (tests, the command line).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from devexplorer.core.devices.catalog import uuid_bytes
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.nvml import Card, Nvml, Slow
from devexplorer.core.records.devices import DeviceSample, Problem
from devexplorer.core.records.messages import Event

OnCards = Callable[[tuple[Card, ...], tuple[Problem, ...]], None]

PATIENCE_S = 2.0
"""After so long without an answer a card is said not to answer, and its curve gets a gap."""

SLOW_INTERVAL_S = 2.0
"""Between two looks at processes, fan, power cap and performance state."""


def next_due(due: float, now: float, interval_s: float) -> float:
    """The first tick of the cadence after `now`: missed ticks are skipped, not made up for, and none drifts."""
    missed = max(int((now - due) // interval_s), 0)
    return due + (missed + 1) * interval_s


class _Watch:
    """What the sampler remembers of one card. Written by the card's thread; `busy_since` is read by the CPU's."""

    def __init__(self, card: Card) -> None:
        self.card = card
        self.slow = Slow()
        self.slow_due: float | None = None
        self.busy_since: float | None = None
        self.stuck = False


class Sampler:
    """Puts a `DeviceSample` per device and tick: `cpu`, the cards by `set_names`, else as `nvml:N`.

    `put` and `on_cards` are called on the sampler's threads and must not wait. `on_cards(cards, problems)` comes once
    NVML was asked (with no cards where there are none), and again whenever one of the two changed.
    `clock` gives the cadence (seconds, monotonic), `unix_clock` stamps the samples.
    """

    def __init__(
        self,
        put: Callable[[Event], None],
        nvml: Nvml,
        cpu: CpuReader,
        interval_s: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
        on_cards: OnCards | None = None,
        patience_s: float = PATIENCE_S,
        slow_interval_s: float = SLOW_INTERVAL_S,
    ) -> None:
        if not interval_s > 0:
            raise ValueError(f"the interval between two samples is a positive number of seconds, not {interval_s}")
        self._put = put
        self._nvml = nvml
        self._cpu = cpu
        self._interval_s = interval_s
        self._clock = clock
        self._unix_clock = unix_clock
        self._on_cards = on_cards
        self._patience_s = patience_s
        self._slow_interval_s = slow_interval_s
        self._names: dict[bytes, str] = {}
        self._watches: tuple[_Watch, ...] | None = None
        self._announced: tuple[tuple[Card, ...], tuple[Problem, ...]] | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    @property
    def opened(self) -> bool:
        """Whether NVML was asked for its cards, successfully or not."""
        return self._watches is not None

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards found; none before NVML was asked."""
        return tuple(watch.card for watch in self._watches or ())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What cannot be watched at present, and why."""
        stuck = [
            Problem("the driver does not answer for this card at present", device=watch.card.nvml_id)
            for watch in self._watches or ()
            if watch.stuck
        ]
        return (*self._cpu.facts.problems, *self._nvml.problems, *stuck)

    def set_names(self, names: Mapping[str, str]) -> None:
        """UUID -> device id, as torch numbers them (`Catalog.names`); cards left out stay `nvml:N`. Any thread."""
        self._names = {key: device for text, device in names.items() if (key := uuid_bytes(text)) is not None}

    def start(self) -> None:
        """Start the threads; returns at once."""
        if self._threads:
            raise RuntimeError("the sampler is already running")
        self._spawn("sampler", partial(self._loop, self._tick_cpu))
        self._spawn("sampler-start", self._open_and_watch)

    def stop(self, deadline_s: float = 1.0) -> bool:
        """Stop within the deadline and close NVML; False when a thread is stuck in the driver and was left behind.

        A thread that is left behind is a daemon: it keeps nothing alive and does nothing more when its call returns.
        """
        self._stop.set()
        until = time.monotonic() + deadline_s
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0))
        if any(thread.is_alive() for thread in threads):
            return False  # shutting NVML down while a call is in it would block as well, or crash
        self._nvml.close()
        return True

    def tick(self) -> None:
        """Sample everything once on this thread; lists the cards first when nobody did."""
        if not self.opened:
            self._open()
        for watch in self._watches or ():
            self._tick_card(watch)
        self._tick_cpu()

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        with self._lock:
            if self._stop.is_set():
                return
            self._threads.append(thread)
            thread.start()

    def _loop(self, work: Callable[[], None]) -> None:
        due = self._clock()
        while not self._stop.is_set():
            work()
            due = next_due(due, self._clock(), self._interval_s)
            self._stop.wait(due - self._clock())

    def _open(self) -> None:
        self._nvml.start()
        self._watches = tuple(_Watch(card) for card in self._nvml.cards())

    def _open_and_watch(self) -> None:
        self._open()
        for watch in self._watches or ():
            suffix = "" if watch.card.mig_instance is None else f"-mig{watch.card.mig_instance}"
            self._spawn(f"sampler-{watch.card.nvml_id}{suffix}", partial(self._loop, partial(self._tick_card, watch)))

    def _tick_cpu(self) -> None:
        self._put(self._cpu.read(self._unix_clock()))
        for watch in self._watches or ():
            self._look_after(watch)
        if self._watches is not None:
            found = (self.cards, self.problems)
            if found != self._announced:
                self._announced = found
                if self._on_cards is not None:
                    self._on_cards(*found)

    def _tick_card(self, watch: _Watch) -> None:
        device = self._name(watch.card)
        if device is None:
            return
        stamp = self._unix_clock()
        watch.busy_since = now = self._clock()
        if watch.slow_due is None or now >= watch.slow_due:
            watch.slow = self._nvml.read_slow(watch.card)
            watch.slow_due = next_due(now if watch.slow_due is None else watch.slow_due, now, self._slow_interval_s)
        sample = self._nvml.read(watch.card, device=device, time_unix_s=stamp, slow=watch.slow)
        watch.busy_since = None
        late, watch.stuck = watch.stuck, False
        if not late and not self._stop.is_set():  # a late one would stand before the gap that was put in its place
            self._put(sample)

    def _look_after(self, watch: _Watch) -> None:
        """A gap in the curve of a card that does not answer, once; its own thread goes on when the call returns."""
        since = watch.busy_since
        if since is None or watch.stuck or self._clock() - since < self._patience_s:
            return
        watch.stuck = True
        device = self._name(watch.card)
        if device is not None:
            self._put(DeviceSample(device=device, time_unix_s=self._unix_clock()))

    def _name(self, card: Card) -> str | None:
        """The id under which a card is sampled; None for a MIG instance that torch does not use."""
        key = uuid_bytes(card.uuid)
        name = self._names.get(key) if key is not None else None
        if name is None and card.mig_instance is None:
            return card.nvml_id
        return name
