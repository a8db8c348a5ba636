"""The only access to NVML: lists NVIDIA cards and reads them. Sampler threads; no torch, no Qt.

Every failure (no library, no driver, an old driver, a lost card, an unsupported field) becomes `None` and a reason in
this package: callers need no try/except, and one failure never hides another field or card.

    query        one query and its failures
    listing      which cards and MIG instances there are
    fields       what is asked of a card often, and seldom
    processes    which processes use a card
    details      fields that hardly ever change
    links        NVLinks and their traffic
    topology     how cards are connected

A blocking call holds only its own thread. Listing, starting and ending wait for each call until its time limit and then
go on without it; a card is read on the caller's thread, and the thread that waits for it calls `give_up` (see
`time_limit`).
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from devexplorer.core.base import Clock
from devexplorer.core.base.time_limit import CallTracker, TimeLimitError, driver_function, run_all
from devexplorer.core.devices.nvml import details as nvml_topology
from devexplorer.core.devices.nvml import fields
from devexplorer.core.devices.nvml.details import PairEnd, lost_details, missing, read_details
from devexplorer.core.devices.nvml.listing import HANDLE, in_pid_namespace, list_cards, read_processes
from devexplorer.core.devices.nvml.query import CardLostError, CardState, NvmlGoneError, Query, QueryRunner
from devexplorer.core.devices.nvml_card import Card, ProcessFacts, ProcessLoad, process_facts, process_load
from devexplorer.core.records import Affinity, DeviceDetails, DeviceSample, PeerLink, Problem, Topology

__all__ = ["Card", "Nvml", "free_bytes"]

RESTART_PATIENCE_S = 1.0
"""How long a restart waits for calls that are under way; shutting NVML down under one may crash."""
CALL_LIMIT_S = 0.7
"""Most that one call may take. Drivers answer within microseconds, and within 20 ms where they measure."""
START_LIMIT_S = 5.0
"""The same for starting NVML, which can wake the cards: seconds on machines without persistence mode. Opening a card
wakes it, too: who asks once gives `open_limit_s` as much, who goes on asking shows the others first and this one when
it is awake."""

SLUGGISH_S = 0.25
"""What changes little within a tenth of a second is not asked again within this time."""

_START = Query("nvml", lambda n, _: n.nvmlInit())
_END = Query("nvml_end", lambda n, _: n.nvmlShutdown())


def driver_cards() -> frozenset[str]:
    """PCI addresses of the cards that Linux's NVIDIA driver holds now; empty elsewhere."""
    try:
        return frozenset(path.name for path in Path("/proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return frozenset()


class Nvml:
    """Access to NVML, started on demand.

    Tests replace `module` (pynvml), `process_facts` (pid -> name, user, command), `process_load` (pid -> what it has
    used), `hidden_processes` (whether this process has its own pid namespace, as in a container, where an empty list
    means nothing), `driver_cards` (PCI addresses of the system driver's cards) and `clock` (monotonic seconds).
    `limit_s`, `start_limit_s` and `open_limit_s`: how long a call may take. Thread-safe as long as each card is read
    by one thread. `start`, `cards`, `topology` and `close` always return in time; a thread inside `read`, `read_slow`
    or `read_details` can hang until `give_up` is called.
    """

    def __init__(
        self,
        module: Any = None,
        *,
        process_facts: Callable[[int], ProcessFacts] = process_facts,
        process_load: Callable[[int], ProcessLoad] = process_load,
        hidden_processes: Callable[[], bool] = in_pid_namespace,
        driver_cards: Callable[[], frozenset[str]] = driver_cards,
        clock: Clock = time.monotonic,
        limit_s: float = CALL_LIMIT_S,
        start_limit_s: float = START_LIMIT_S,
        open_limit_s: float | None = None,
    ) -> None:
        self.limit_s = limit_s
        self.open_limit_s = limit_s if open_limit_s is None else open_limit_s
        self.start_limit_s = start_limit_s
        self._module = module
        self._process_facts, self._process_load = process_facts, process_load
        self._hidden_processes = hidden_processes
        self._driver_cards = driver_cards
        self._clock = clock
        self._runner = QueryRunner()
        self._machine = CardState(None, hanging=self._runner.hanging_at("machine"))
        self._cards: dict[str, CardState] = {}
        self._listing = threading.RLock()
        self._started = False
        self._pause = False
        self._gone: str | None = None
        self._held_at_start: frozenset[str] = frozenset()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Current problems, without duplicates; cards are named `nvml:N`. An unsupported field is not a problem."""
        return self._runner.problems((self._machine, *list(self._cards.values())))

    @property
    def started(self) -> bool:
        """Whether NVML was started and still answers."""
        return self._started and self._gone is None

    def start(self) -> bool:
        """Load and initialise NVML; False, with a problem, when there is none. Takes seconds if cards are asleep."""
        if self._gone is not None:
            return self.restart()
        if self._started:
            return True
        if self._module is None:
            try:
                self._module = importlib.import_module("pynvml")
            except ImportError:
                self._runner.add_problem(
                    self._machine, "nvml", "NVIDIA cards cannot be watched: the package nvidia-ml-py is not installed"
                )
                return False
        self._runner.module = self._module
        try:
            self._in_time([self._job(_START)])
        except TimeLimitError as error:
            self._runner.remove_problem(self._machine, "nvml")
            self._runner.add_problem(self._machine, "nvml", str(error))
            return False
        except Exception as error:  # pynvml also raises OSError and AttributeError for a half-installed driver
            self._runner.add_problem(self._machine, "nvml", self._runner.start_message(error))
            return False
        self._started, self._gone = True, None
        self._held_at_start = self._driver_cards()
        self._runner.remove_problem(self._machine, "nvml")
        return True

    def restart(self) -> bool:
        """Restart NVML after its driver was unloaded, or for a new card; `cards()` does so itself.

        Old handles become invalid, so the cards must be listed again. False if NVML does not start, or if a call is
        still inside it after a second.
        """
        with self._listing:
            self._pause = True
            try:
                if not self._calls_ended():
                    return False
                if self._started:
                    self._shut_down()
                for state in self._cards.values():
                    state.handle = None
                self._machine.unsupported = {}
                gone, self._gone = self._gone, None
                if not self.start():
                    self._gone = gone or "NVML did not start again"
                return self._started
            finally:
                self._pause = False

    def close(self) -> bool:
        """Shut NVML down; no other thread may be reading. False if a call hangs: shutting down during it may crash."""
        if self._runner.any_hangs:
            return False
        if self._started:
            self._cards = {}
            self._shut_down()
        return True

    def _shut_down(self) -> None:
        self._started = False
        try:
            self._in_time([self._job(_END)])
        except Exception:
            pass  # NVML ends anyway, or was gone already

    def _calls_ended(self) -> bool:
        until = time.monotonic() + RESTART_PATIENCE_S
        while any(state.busy for state in (self._machine, *self._cards.values())):
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        return not self._runner.any_hangs

    # how long it may take

    def give_up(self, card: Card, *, limit_s: float | None = None) -> bool:
        """Abandon the call that is reading this card if it exceeds the limit. Any thread; call it repeatedly.

        True: the reading thread will raise `AbandonedError` when its call returns; read again on another thread, which
        leaves that call out.
        """
        state = self._cards.get(card.key)
        return state is not None and self._runner.give_up(
            state.tracker, time.monotonic(), self.limit_s if limit_s is None else limit_s
        )

    def waited_s(self, card: Card) -> float:
        """For how long the present call about this card has been seen to take; 0 between calls. Call it repeatedly."""
        state = self._cards.get(card.key)
        return 0.0 if state is None else state.tracker.waited_s(time.monotonic())

    def inside(self, card: Card) -> str | None:
        """The NVML function that is reading this card now."""
        state = self._cards.get(card.key)
        return None if state is None else driver_function(state.tracker.thread)

    @property
    def late_returns(self) -> int:
        """How many calls have returned that were given up."""
        return self._runner.late_returns

    def _in_time(self, jobs: Sequence[Callable[[CallTracker], Any]]) -> list[Any]:
        return run_all(jobs, self._give_up, "nvml")

    def _give_up(self, tracker: CallTracker, now: float) -> bool:
        subject = tracker.subject
        special = {_START.field: self.start_limit_s, HANDLE: self.open_limit_s}
        return self._runner.give_up(
            tracker, now, self.limit_s if subject is None else special.get(subject[1].field, self.limit_s)
        )

    def _job(self, query: Query) -> Callable[[CallTracker], Any]:
        """A single query to NVML itself."""

        def ask(tracker: CallTracker) -> Any:
            self._machine.tracker = tracker
            return self._runner.call(self._machine, query)

        return ask

    # what is there

    def cards(self) -> tuple[Card, ...]:
        """Every card in NVML's order, each followed by its MIG instances; broken ones with their reason.

        May be called at any time: new cards and instances are added, missing ones removed; a known card costs two or
        three calls and gives an equal record, and unsupported fields are tried again. NVML is restarted first if the
        driver was unloaded or holds a card that NVML does not know.
        """
        with self._listing:
            if self._gone is not None or (self._started and self._driver_cards() - self._held_at_start):
                self.restart()
            if (result := self._listed()) is None and self._started and self.restart():
                result = self._listed()  # a driver that was reloaded answers the old session with errors
            if result is not None:
                self._cards = result
            if self._gone is not None:
                return tuple(replace(state.known_card, broken=self._gone) for state in self._cards.values())
            return tuple(state.known_card for state in self._cards.values())

    def _listed(self) -> dict[str, CardState] | None:
        """The cards; None when NVML does not answer."""
        if not self.started:
            return None
        try:
            return list_cards(self._runner, self._machine, self._cards, self._in_time)
        except NvmlGoneError as error:
            self._lose_nvml(error)
            return None

    # how it is doing

    def read(self, card: Card, *, device: str, time_unix_s: float, slow: DeviceSample | None = None) -> DeviceSample:
        """The quick fields of one card (two or three calls, six every third time) plus those of `slow`, as a sample of
        `device`.

        `slow` is what `read_slow` returned last. It is left out if the card is lost or cannot be read: it would be out
        of date.
        """
        values: dict[str, Any] = {}
        with self._reading(card) as state:
            if state is not None:
                quick, sluggish = fields.by_pace(card.compute_capability)
                self._runner.read(state, quick, values)
                if (now := self._clock()) >= state.sluggish_due:
                    answers: dict[str, Any] = {}
                    self._runner.read(state, sluggish, answers)
                    state.sluggish, state.sluggish_due = answers, now + SLUGGISH_S
                values |= state.sluggish
                self._runner.remove_problem(state, None)  # nothing said that the card is lost
                if slow is not None:
                    return replace(slow, device=device, time_unix_s=time_unix_s, **values)
        return DeviceSample(device=device, time_unix_s=time_unix_s, **values)

    def read_slow(self, card: Card) -> DeviceSample:
        """Fields of one card that change seldom or are expensive, about every two seconds: a sample without a time.

        Two of its calls block for 20 ms each on a real card, because the driver measures that long. A card that is lost
        has no field.
        """
        with self._reading(card) as state:
            if state is not None:
                values: dict[str, Any] = {}
                self._runner.read(state, fields.SINGLE, values)
                values |= fields.read_grouped(self._runner, state, self._clock())
                self._runner.read(state, fields.PCIE_THROUGHPUT, values)
                processes = read_processes(
                    self._runner,
                    state,
                    card,
                    self._process_facts,
                    self._hidden_processes(),
                    self._process_load,
                    self._clock(),
                )
                values |= fields.read_rates_again(self._runner, state, self._clock())
                return DeviceSample(device=card.nvml_id, time_unix_s=0.0, **values, processes=processes)
        return DeviceSample(device=card.nvml_id, time_unix_s=0.0)

    def read_details(self, card: Card, *, device: str, time_unix_s: float) -> DeviceDetails:
        """Fields of one card that hardly ever change; about twice a minute. `missing` covers the samples' fields too,
        so call it after the first sample."""
        lost = card.broken
        with self._reading(card) as state:
            if state is not None:
                try:
                    return read_details(self._runner, state, device=device, time_unix_s=time_unix_s, now=self._clock())
                except CardLostError as error:
                    lost = str(error)
        return lost_details(device, time_unix_s, lost or self._gone or "the card was not opened")

    def missing(self, card: Card) -> dict[str, str]:
        """Why fields of the card's samples and details are not known now."""
        state = self._cards.get(card.key)
        return {} if state is None else missing(state)

    def topology(self, cards: Sequence[Card], names: Mapping[str, str]) -> Topology:
        """How the cards are connected, every pair once, without MIG instances.

        `names`: `Card.key` -> device id; other cards go by `nvml:N`. Any thread: it does not change the state of a
        card.
        """
        if self._pause or not self.started:
            return Topology(source="nvml")

        # a copy of each, so that queries do not change the card's state; only hanging calls are shared
        own = [
            (
                names.get(card.key, card.nvml_id),
                CardState(card.nvml_id, card, state.handle, hanging=state.hanging),
                state,
            )
            for card in cards
            if card.mig_instance is None
            and (state := self._cards.get(card.key)) is not None
            and state.handle is not None
        ]

        def one(device: str, copy: CardState, state: CardState, tracker: CallTracker) -> tuple[PairEnd, Affinity]:
            copy.tracker = tracker
            end = nvml_topology.end(self._runner, device, copy)
            state.links = copy.links
            return end, self._affinity(device, copy)

        def joined(number: int, tracker: CallTracker) -> list[PeerLink]:
            ends[number].state.tracker = tracker
            return [nvml_topology.pair(self._runner, ends[number], other) for other in ends[number + 1 :]]

        self._machine.busy = True
        try:
            found = self._in_time([partial(one, *card) for card in own])
            ends = nvml_topology.with_switches([end for end, _ in found])
            pairs = self._in_time([partial(joined, number) for number in range(len(ends))])
            return Topology(
                source="nvml", links=tuple(chain.from_iterable(pairs)), affinities=tuple(near for _, near in found)
            )
        except NvmlGoneError as error:
            self._lose_nvml(error)
            return Topology(source="nvml")
        finally:
            self._machine.busy = False

    def _affinity(self, device: str, state: CardState) -> Affinity:
        try:
            cpus = self._runner.ask(state, nvml_topology.CPUS)
            return Affinity(device=device, cpus=cpus, numa_node=nvml_topology.numa_node(self._runner, state))
        except CardLostError:
            return Affinity(device=device)

    def _reading(self, card: Card) -> _Reading:
        return _Reading(self, self._cards.get(card.key))

    def _lose_nvml(self, error: NvmlGoneError) -> None:
        self._gone = str(error)
        self._runner.add_problem(self._machine, "nvml", str(error))


def free_bytes(uuid: str, make: Callable[[], Nvml] = Nvml) -> int | None:
    """Free memory of the card, or MIG instance, with this UUID as CUDA has it; None where NVML does not say. Waits."""
    nvml, free = make(), None
    try:
        if nvml.start():
            for card in nvml.cards():
                if card.uuid is not None and card.uuid[-36:] == uuid[-36:]:  # CUDA writes GPU- for MIG-, too
                    free = nvml.read(card, device=card.nvml_id, time_unix_s=0.0).memory_free_bytes
    finally:
        nvml.close()
    return free


class _Reading:
    """`with` it a card is read: gives its state, or None if it cannot be read. Losing the card or NVML ends the block.

    Not a generator: there are a hundred such blocks a second, and one costs three times as much.
    """

    __slots__ = ("_nvml", "_state", "_tracker")

    def __init__(self, nvml: Nvml, state: CardState | None) -> None:
        self._nvml = nvml
        self._state = state if state is not None and state.handle is not None else None
        self._tracker = CallTracker()

    def __enter__(self) -> CardState | None:
        state = self._state
        if state is None:
            return None
        state.tracker = self._tracker
        state.busy = True  # before the pause is looked at: a restart first sets that, and then waits for this
        return None if self._nvml._pause or not self._nvml.started else state

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if isinstance(error, NvmlGoneError):
            self._nvml._lose_nvml(error)
        if self._state is not None and self._state.tracker is self._tracker:  # else another thread has taken over
            self._state.busy = False
        return isinstance(error, CardLostError | NvmlGoneError)  # a lost card was noted by the query
