"""The one door to NVML: which NVIDIA cards there are, and how each of them is doing. Sampler threads; no torch, no Qt.

Whatever goes wrong in there (no library, no driver, an old driver, a lost card, a field that this card lacks) becomes
`None` and a reason in the modules beside this one, nowhere else: callers need no try/except, and no failure hides
another field or card.

    nvml_asking     one question, and what becomes of it when it fails
    nvml_listing    which cards and MIG instances there are
    nvml_fields     the quick fields, and what identifies a card
    nvml_slow       what changes seldom or costs much
    nvml_processes  who uses a card
    nvml_details    what hardly ever changes
    nvml_links      NVLinks and their traffic
    nvml_topology   how cards are joined

A call that blocks holds its own thread only. What lists cards, starts NVML or ends it waits for each call as long as
the time limit says and goes on without it; what reads one card runs on the caller's thread, and whoever waits for that
calls `give_up`. `time_limit` explains it.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from devexplorer.core.devices.nvml import fields
from devexplorer.core.devices.nvml import slow_fields as nvml_slow
from devexplorer.core.devices.nvml import topology as nvml_topology
from devexplorer.core.devices.nvml.details import lost_details, missing, read_details
from devexplorer.core.devices.nvml.listing import HANDLE, list_cards
from devexplorer.core.devices.nvml.processes import in_pid_namespace, read_processes
from devexplorer.core.devices.nvml.query import CardLostError, CardState, NvmlGoneError, Query, QueryRunner
from devexplorer.core.devices.nvml_card import Card, ProcessFacts, SlowFields
from devexplorer.core.devices.process_facts import process_facts
from devexplorer.core.devices.time_limit import CallTracker, TimeLimitError, driver_function, run_all
from devexplorer.core.records.devices import Affinity, DeviceDetails, DeviceSample, Problem, Topology

__all__ = ["Card", "Nvml"]

RESTART_PATIENCE_S = 1.0
"""How long a restart waits for calls that are under way; shutting NVML down under one may crash."""
CALL_LIMIT_S = 0.7
"""Most that one call may take. Drivers answer within microseconds, and within 20 ms where they measure."""
START_LIMIT_S = 5.0
"""The same for starting NVML, which can wake the cards: seconds on machines without persistence mode. Opening a card
wakes it, too: who asks once gives `open_limit_s` as much, who goes on asking shows the others first and this one when
it is awake."""

_START = Query("nvml", (lambda n, _: n.nvmlInit(),))
_END = Query("nvml_end", (lambda n, _: n.nvmlShutdown(),))


def driver_cards() -> frozenset[str]:
    """PCI addresses of the cards that Linux's NVIDIA driver holds at present; empty elsewhere."""
    try:
        return frozenset(path.name for path in Path("/proc/driver/nvidia/gpus").iterdir())
    except OSError:
        return frozenset()


class Nvml:
    """NVML, started when asked to and never in the way of anything else.

    `module` stands in for pynvml (tests); `process_facts` says who a pid is; `hidden_processes` tells whether this
    process lives in a pid namespace of its own (a container), where an empty list means nothing; `driver_cards` names
    the cards that the system's driver holds; `clock` is monotonic, in seconds. `limit_s`, `start_limit_s` and
    `open_limit_s`: how long a call may take. Safe to call from several threads as long as each card is read by one.
    `start`, `cards`, `topology` and `close` return in time whatever hangs; a thread inside `read`, `read_slow` or
    `read_details` can hang, until somebody calls `give_up`.
    """

    def __init__(
        self,
        module: Any = None,
        *,
        process_facts: Callable[[int], ProcessFacts] = process_facts,
        hidden_processes: Callable[[], bool] = in_pid_namespace,
        driver_cards: Callable[[], frozenset[str]] = driver_cards,
        clock: Callable[[], float] = time.monotonic,
        limit_s: float = CALL_LIMIT_S,
        start_limit_s: float = START_LIMIT_S,
        open_limit_s: float | None = None,
    ) -> None:
        self.limit_s = limit_s
        self.open_limit_s = limit_s if open_limit_s is None else open_limit_s
        self.start_limit_s = start_limit_s
        self._module = module
        self._process_facts = process_facts
        self._hidden_processes = hidden_processes
        self._driver_cards = driver_cards
        self._clock = clock
        self._asker = QueryRunner()
        self._machine = CardState(None, hanging=self._asker.hanging_at("machine"))
        self._opened: dict[str, CardState] = {}
        self._listing = threading.RLock()
        self._started = False
        self._pause = False
        self._gone: str | None = None
        self._held_at_start: frozenset[str] = frozenset()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What cannot be found out at present, each reason once; cards are named `nvml:N`. A field that a card simply
        lacks is none."""
        return self._asker.problems((self._machine, *list(self._opened.values())))

    @property
    def started(self) -> bool:
        """Whether NVML answered, and did not stop since."""
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
                self._asker.note(
                    self._machine, "nvml", "NVIDIA cards cannot be watched: the package nvidia-ml-py is not installed"
                )
                return False
        self._asker.module = self._module
        try:
            self._in_time([self._job(_START)])
        except TimeLimitError as error:
            self._asker.withdraw(self._machine, "nvml")
            self._asker.note(self._machine, "nvml", str(error))
            return False
        except Exception as error:  # pynvml also raises OSError and AttributeError for a half-installed driver
            self._asker.note(self._machine, "nvml", self._asker.start_words(error))
            return False
        self._started, self._gone = True, None
        self._held_at_start = self._driver_cards()
        self._asker.withdraw(self._machine, "nvml")
        return True

    def restart(self) -> bool:
        """Start NVML anew: after its driver was unloaded, and for a card that came later. `cards()` does so by itself.

        Handles of the time before are forgotten, so cards have to be listed again. False when NVML does not start, and
        when a call is still inside it after a second.
        """
        with self._listing:
            self._pause = True
            try:
                if not self._calls_ended():
                    return False
                if self._started:
                    self._shut_down()
                for opened in self._opened.values():
                    opened.handle = None
                self._machine.lacking = {}
                gone, self._gone = self._gone, None
                if not self.start():
                    self._gone = gone or "NVML did not start again"
                return self._started
            finally:
                self._pause = False

    def close(self) -> bool:
        """Give NVML back. Call it when no other thread reads. False: a call hangs, and shutting NVML down under one may
        crash."""
        if self._asker.any_hangs:
            return False
        if self._started:
            self._opened = {}
            self._shut_down()
        return True

    def _shut_down(self) -> None:
        self._started = False
        try:
            self._in_time([self._job(_END)])
        except Exception:
            pass  # it ends anyway, or was gone already, and there is nobody left to tell

    def _calls_ended(self) -> bool:
        until = time.monotonic() + RESTART_PATIENCE_S
        while any(opened.busy for opened in (self._machine, *self._opened.values())):
            if time.monotonic() > until:
                return False
            time.sleep(0.001)
        return not self._asker.any_hangs

    # how long it may take

    def give_up(self, card: Card, *, limit_s: float | None = None) -> bool:
        """Leave the call behind that reads this card now, if it takes longer than the limit. Any thread, again and
        again.

        True: the thread that reads will raise `LeftBehindError` when its call returns; read again, on another thread,
        and everything but that call is answered.
        """
        opened = self._opened.get(card.key)
        return opened is not None and self._asker.give_up(
            opened.line, time.monotonic(), self.limit_s if limit_s is None else limit_s
        )

    def inside(self, card: Card) -> str | None:
        """The function of NVML that reads this card now."""
        opened = self._opened.get(card.key)
        return None if opened is None else driver_function(opened.line.thread)

    @property
    def came_back(self) -> int:
        """How many calls have returned that were given up."""
        return self._asker.came_back

    def _in_time(self, jobs: Sequence[Callable[[CallTracker], Any]]) -> list[Any]:
        return run_all(jobs, self._give_up, "nvml")

    def _give_up(self, line: CallTracker, now: float) -> bool:
        subject = line.subject
        special = {_START.field: self.start_limit_s, HANDLE: self.open_limit_s}
        return self._asker.give_up(
            line, now, self.limit_s if subject is None else special.get(subject[1].field, self.limit_s)
        )

    def _job(self, question: Query) -> Callable[[CallTracker], Any]:
        """A question to NVML itself, for once."""

        def ask(line: CallTracker) -> Any:
            self._machine.line = line
            return self._asker.call(self._machine, question)

        return ask

    # what is there

    def cards(self) -> tuple[Card, ...]:
        """Every card in NVML's order, each followed by its MIG instances; the broken ones with their reason.

        Call it again at any time: new cards and MIG instances join, those that are no more leave, a known one costs two
        or three calls and gives an equal record, and what was found lacking is asked again. Where the driver was
        unloaded, or holds a card that NVML does not know yet, NVML is started anew first.
        """
        with self._listing:
            if self._gone is not None or (self._started and self._driver_cards() - self._held_at_start):
                self.restart()
            if (found := self._listed()) is None and self._started and self.restart():
                found = self._listed()  # a driver that was reloaded answers the old session with errors
            if found is not None:
                self._opened = found
            if self._gone is not None:
                return tuple(
                    msgspec.structs.replace(opened.known_card, broken=self._gone) for opened in self._opened.values()
                )
            return tuple(opened.known_card for opened in self._opened.values())

    def _listed(self) -> dict[str, CardState] | None:
        """The cards; None when NVML does not answer."""
        if not self.started:
            return None
        try:
            return list_cards(self._asker, self._machine, self._opened, self._in_time)
        except NvmlGoneError as error:
            self._lose_nvml(error)
            return None

    # how it is doing

    def read(self, card: Card, *, device: str, time_unix_s: float, slow: SlowFields | None = None) -> DeviceSample:
        """The quick fields of one card (six calls), joined with the last `slow` ones, as a sample of `device`.

        Of a card that turns out to be lost, or that cannot be asked, the `slow` ones are not repeated: they are of
        another time.
        """
        ask = self._asker.ask
        answers = False
        memory: fields.Memory | None = None
        utilization: fields.Utilization | None = None
        temperature = power = clock = memory_clock = None
        if (opened := self._enter(card)) is not None:
            try:
                memory = ask(opened, fields.MEMORY)
                utilization = ask(opened, fields.UTILIZATION)
                temperature = ask(opened, fields.TEMPERATURE)
                power = ask(opened, fields.POWER)
                clock = ask(opened, fields.SM_CLOCK)
                memory_clock = ask(opened, fields.MEMORY_CLOCK)
                self._asker.withdraw(opened, None)  # nothing said that the card is lost
                answers = True
            except CardLostError:
                pass  # stated by the asker; what was read before it is kept
            except NvmlGoneError as error:
                self._lose_nvml(error)
            finally:
                self._leave(opened)
        return DeviceSample(
            device=device,
            time_unix_s=time_unix_s,
            memory_used_bytes=memory.used_bytes if memory else None,
            memory_free_bytes=memory.free_bytes if memory else None,
            memory_reserved_bytes=memory.reserved_bytes if memory else None,
            memory_total_bytes=memory.total_bytes if memory else None,
            utilization_percent=utilization.gpu_percent if utilization else None,
            memory_utilization_percent=utilization.memory_percent if utilization else None,
            temperature_c=temperature,
            power_w=power,
            sm_clock_mhz=clock,
            memory_clock_mhz=memory_clock,
            **(slow._asdict() if slow is not None and answers else {}),
        )

    def read_slow(self, card: Card, *, pcie_throughput: bool = True) -> SlowFields:
        """What changes seldom or costs much, of one card; about every two seconds.

        `pcie_throughput`: two calls that block for 20 ms each on a real card, because the driver measures that long;
        without them the two fields are None. A call that finds the card lost gives an empty `SlowFields`.
        """
        opened = self._enter(card)
        if opened is None:
            return SlowFields()
        try:
            values = {question.field: self._asker.ask(opened, question) for question in nvml_slow.SINGLE}
            values |= nvml_slow.read_grouped(self._asker, opened, self._clock())
            if pcie_throughput:
                values |= {question.field: self._asker.ask(opened, question) for question in nvml_slow.PCIE_THROUGHPUT}
            processes = read_processes(self._asker, opened, card, self._process_facts, self._hidden_processes())
            values |= nvml_slow.read_rates_again(self._asker, opened, self._clock())
            return SlowFields(**values, processes=processes)
        except CardLostError:
            return SlowFields()
        except NvmlGoneError as error:
            self._lose_nvml(error)
            return SlowFields()
        finally:
            self._leave(opened)

    def read_details(self, card: Card, *, device: str, time_unix_s: float) -> DeviceDetails:
        """What hardly ever changes, of one card; about twice a minute, after its first samples: `missing` covers their
        fields, too."""
        opened = self._enter(card)
        if opened is None:
            return lost_details(device, time_unix_s, card.broken or self._gone or "the card was not opened")
        try:
            return read_details(self._asker, opened, device=device, time_unix_s=time_unix_s, now=self._clock())
        except CardLostError as error:
            return lost_details(device, time_unix_s, str(error))
        except NvmlGoneError as error:
            self._lose_nvml(error)
            return lost_details(device, time_unix_s, str(error))
        finally:
            self._leave(opened)

    def missing(self, card: Card) -> dict[str, str]:
        """Why fields of the card's samples and details are not known at present."""
        opened = self._opened.get(card.key)
        return {} if opened is None else missing(opened)

    def topology(self, cards: Sequence[Card], names: Mapping[str, str]) -> Topology:
        """How the cards are joined, every pair once; MIG instances are parts of their cards and left out.

        `names`: `Card.key` -> device id; others go by `nvml:N`. Any thread: it leaves no trace on what is remembered of
        a card.
        """
        if self._pause or not self.started:
            return Topology(source="nvml")

        def job(line: CallTracker) -> Topology:
            own = [
                (names.get(card.key, card.nvml_id), self._copy(card, opened, line))
                for card in cards
                if card.mig_instance is None
                and (opened := self._opened.get(card.key)) is not None
                and opened.handle is not None
            ]
            ends = nvml_topology.ends(self._asker, own)
            pairs = [nvml_topology.pair(self._asker, a, b) for a, b in combinations(ends, 2)]
            near = [self._affinity(device, opened) for device, opened in own]
            return Topology(source="nvml", links=tuple(pairs), affinities=tuple(near))

        self._machine.busy = True
        try:
            found: Topology = self._in_time([job])[0]
            return found
        except NvmlGoneError as error:
            self._lose_nvml(error)
            return Topology(source="nvml")
        finally:
            self._machine.busy = False

    def _copy(self, card: Card, opened: CardState, line: CallTracker) -> CardState:
        """A card to ask without a trace on what is remembered of it, except for calls that hang."""
        return CardState(card.nvml_id, card, opened.handle, line=line, hanging=opened.hanging)

    def _affinity(self, device: str, opened: CardState) -> Affinity:
        try:
            cpus = self._asker.ask(opened, nvml_topology.CPUS)
            return Affinity(device=device, cpus=cpus, numa_node=nvml_topology.numa_node(self._asker, opened))
        except CardLostError:
            return Affinity(device=device)

    def _enter(self, card: Card) -> CardState | None:
        """What is remembered of a card, marked as being read; None where it cannot be asked."""
        opened = self._opened.get(card.key)
        if opened is None or opened.handle is None:
            return None
        opened.line = CallTracker()
        opened.busy = True  # before the pause is looked at: a restart first sets that, and then waits for this
        if self._pause or not self.started:
            self._leave(opened)
            return None
        return opened

    def _leave(self, opened: CardState) -> None:
        if opened.line.thread is threading.current_thread():  # else somebody gave up on this one and reads anew
            opened.busy = False

    def _lose_nvml(self, error: NvmlGoneError) -> None:
        self._gone = str(error)
        self._asker.note(self._machine, "nvml", str(error))
