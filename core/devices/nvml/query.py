"""Runs queries against NVML and handles everything that can go wrong with them. Sampler threads; no torch, no Qt.

A query has one or more getters. A failure becomes None and a reason, and also a `Problem` if every card is expected to
have the field. Only two things end a reading: the card is lost, or NVML is gone.

Each call is noted on the `CallTracker` of its job. The thread that waits for the job calls `give_up`; a call that hangs
is not repeated until it returns, and its query is answered with None and that reason.

Some drivers write one entry more into a list than they were given room for (nvitop allocates one more for that reason),
which would damage this process's memory. The calls in which the driver writes one are at the end: they leave room
behind it, take what pynvml's take, and raise what pynvml's raise.
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from devexplorer.core.base.time_limit import AbandonedError, CallTracker, TimeLimitError, driver_function
from devexplorer.core.devices.nvml_card import Card, ProcessFacts
from devexplorer.core.devices.plausible import refuse_too_fast
from devexplorer.core.records import NvLink, Problem

Getter = Callable[[Any, Any], Any]
"""`getter(pynvml, handle)`; raises what pynvml raises, and ValueError for an impossible answer."""

_LACKING = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "INVALID_ARGUMENT", "DEPRECATED")
"""Errors that last until the cards are listed again."""

_GONE = ("UNINITIALIZED", "DRIVER_NOT_LOADED")
"""NVML itself has stopped: no query has an answer until it is started again."""

MOST_HANGING = 3
"""Most calls of a card that may hang at once; beyond that, the card is not queried until one returns."""
QUICKER = 0.2
"""Share of the time limit for other calls of a card while one of its calls hangs."""


class Query:
    """A field of a card and the calls that can read it, in order of preference."""

    __slots__ = ("also", "expected", "field", "fields", "getters", "many", "most", "parts", "text")

    def __init__(
        self,
        field: str,
        *getters: Getter,
        expected: bool = False,
        also: tuple[str, ...] = (),
        parts: bool = False,
        text: bool = False,
        many: bool = False,
        most: Query | None = None,
    ) -> None:
        self.field = field
        """Of `DeviceSample` or `DeviceDetails`."""
        self.getters = getters
        """The next one is tried where the one before is unsupported."""
        self.expected = expected
        """Whether a missing answer is a `Problem`; most cards lack something (a GeForce has no ECC)."""
        self.also = also
        """Further fields of the same answer, missing for the same reason; the answer is then a tuple."""
        self.fields = (field, *also)
        """All fields of the answer."""
        self.parts = parts
        """Whether parts of the answer can be refused: `answer.refused` maps fields to reasons."""
        self.text = text
        """Whether the answer is text: bytes that are not UTF-8 are then replaced."""
        self.many = many
        """Whether it makes many calls, each with its own time limit."""
        self.most = most
        """The query of the card's maximum of a clock in MHz: an answer far above it is refused."""


_COUNT = Query("still_there")
NOT_TEXT = "the driver returned bytes that are not text"


class CardLostError(Exception):
    """The card fell off the bus: it answers no other query."""


class NvmlGoneError(Exception):
    """NVML has stopped answering for all cards."""


class _CallCounter:
    """pynvml for a query of many calls: counts each, so that a hundred quick calls do not look like one that hangs."""

    __slots__ = ("_module", "_tracker")

    def __init__(self, module: Any, tracker: CallTracker) -> None:
        self._module, self._tracker = module, tracker

    def __getattr__(self, name: str) -> Any:
        self._tracker.calls += 1
        return getattr(self._module, name)


class CardState(msgspec.Struct, eq=False):
    """What is known about a card between queries (`device` None: about the machine). One thread reads a card."""

    device: str | None
    card: Card | None = None
    handle: Any = None
    tracker: CallTracker = msgspec.field(default_factory=CallTracker)
    """Of the current job."""
    hanging: dict[str, str] = msgspec.field(default_factory=dict)
    """Field of a query whose call has not returned -> reason. Shared by all states of one place."""
    busy: bool = False
    """Whether a thread is reading it."""
    unsupported: dict[str, int] = msgspec.field(default_factory=dict)
    """Field -> how many of its getters to skip. Cleared after a listing: the driver or the MIG mode may have
    changed."""
    reasons: dict[str, str] = msgspec.field(default_factory=dict)
    """Field -> why it is unknown."""
    problems: dict[str | None, Problem] = msgspec.field(default_factory=dict)
    most: dict[str, int] = msgspec.field(default_factory=dict)
    """Field of a maximum -> MHz, once it is known."""
    counters: dict[tuple[str, int], tuple[float, int]] = msgspec.field(default_factory=dict)
    """NVLink traffic: (name, link) -> (monotonic seconds of the reading, bytes)."""
    links: tuple[NvLink, ...] | None = None
    """As the topology has found them, until the details take them: four calls for each of 18 links."""
    sluggish: dict[str, Any] = msgspec.field(default_factory=dict)
    """The last answers to `fields.SLUGGISH`."""
    sluggish_due: float = -math.inf
    """When those are asked again, monotonic seconds."""
    known_processes: dict[int, ProcessFacts] = msgspec.field(default_factory=dict)
    """Processes of the previous reading, so that each is looked up once."""
    cpu_seen: dict[int, tuple[float, float]] = msgspec.field(default_factory=dict)
    """Process number -> monotonic seconds of the previous reading, and the seconds of CPU until then."""
    processes_seen: int = 0
    """Driver's time stamp of the newest sample of process utilization, microseconds."""

    @property
    def known_card(self) -> Card:
        """The card; not for the state of the machine."""
        assert self.card is not None
        return self.card


class QueryRunner:
    """Runs queries, and keeps the reasons for missing answers. Thread-safe as long as one thread reads a card."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._module: Any = None
        self._unsupported: frozenset[int] = frozenset()
        self._gone: frozenset[int] = frozenset()
        self._lost = -1
        self._known_messages: dict[int, str] = {}
        self.late_returns = 0
        """How many abandoned calls have returned."""
        self._hanging: dict[tuple[int | str, int | str | None], dict[str, str]] = {}

    def hanging_at(self, index: int | str, part: int | str | None = None) -> dict[str, str]:
        """The hanging calls at a place in NVML's list, whatever card is there (`CardState.hanging`)."""
        return self._hanging.setdefault((index, part), {})

    @property
    def any_hangs(self) -> bool:
        """Whether an abandoned call is still inside the driver."""
        return any(self._hanging.copy().values())

    @property
    def module(self) -> Any:
        """pynvml or its replacement; None before it is needed."""
        return self._module

    @module.setter
    def module(self, module: Any) -> None:
        self._module = module
        self._unsupported = frozenset(self.code(name) for name in _LACKING)
        self._gone = frozenset(self.code(name) for name in _GONE)
        self._lost = self.code("GPU_IS_LOST")
        self._known_messages = {
            self._lost: "the card is lost (it fell off the bus or its driver gave it up); a reboot brings it back",
            self.code("UNINITIALIZED"): "the NVIDIA driver has stopped answering, as after it was unloaded or updated",
            self.code("DRIVER_NOT_LOADED"): "the NVIDIA driver was unloaded",
            self.code("NOT_SUPPORTED"): "this card or its driver does not support it",
            self.code("FUNCTION_NOT_FOUND"): "the driver is too old for it",
            self.code("ARGUMENT_VERSION_MISMATCH"): "the driver is too old for it",
            self.code("NO_PERMISSION"): "this user may not ask for it",
            self.code("RESET_REQUIRED"): "the card has to be reset",
        }

    def code(self, name: str) -> int:
        """The number of an error; -1 if this pynvml does not define it."""
        return int(getattr(self._module, f"NVML_ERROR_{name}", -1))

    def ask(self, state: CardState, query: Query) -> Any:
        """The first answer, or None with a reason. Raises `CardLostError`, `NvmlGoneError` and `AbandonedError`."""
        field, getters, tracker = query.field, query.getters, state.tracker
        if state.hanging and self._hangs(state, query):
            return None
        most = None if query.most is None else self._most(state, query.most)
        for number in range(state.unsupported.get(field, 0), len(getters)):
            tracker.calls += 1
            tracker.subject = (state, query)
            try:
                answer = getters[number](
                    _CallCounter(self._module, tracker) if query.many else self._module, state.handle
                )
                if most is not None:
                    refuse_too_fast(answer, most)
            except UnicodeDecodeError as error:  # names come as bytes, and pynvml insists on UTF-8
                self._returned(state, query, tracker)
                if not query.text:
                    self.set_missing(state, query, NOT_TEXT, problem=query.expected)
                    return None
                answer = bytes(error.object).decode("utf-8", "replace")
            except Exception as error:
                self._returned(state, query, tracker)
                if self._failed(state, query, number, error):
                    continue
                return None
            tracker.subject = None
            if tracker.left:
                self._returned(state, query, tracker)
            if query.parts:
                if answer.refused or (state.reasons and not state.reasons.keys().isdisjoint(query.fields)):
                    self._settle_parts(state, query, answer.refused)
            elif field in state.reasons:
                self.clear_reason(state, query)
            return answer
        return None

    def _most(self, state: CardState, query: Query) -> int | None:
        """The card's maximum of a clock, asked until it is known."""
        if query.field not in state.most:
            answer = self.ask(state, query)
            if answer is None:
                return None
            state.most[query.field] = answer
        return state.most[query.field]

    def read(self, state: CardState, queries: Iterable[Query], values: dict[str, Any]) -> None:
        """Add the answers of several queries to `values`, by field; what was read before an exception stays there."""
        for query in queries:
            answer = self.ask(state, query)
            if query.also and answer is not None:
                values.update(zip(query.fields, answer, strict=False))
            else:
                values[query.field] = answer

    def _settle_parts(self, state: CardState, query: Query, refused: Mapping[str, str]) -> None:
        """Update reasons after an answer, which may lack some parts."""
        for field in query.fields:
            if (why := refused.get(field)) is not None:
                state.reasons[field] = why
                self.add_problem(state, field, why)
            else:
                state.reasons.pop(field, None)
                self.remove_problem(state, field)

    def call(self, state: CardState, query: Query) -> Any:
        """The answer of the first way, or what it raises. Raises `TimeLimitError` while an earlier call hangs, and
        `AbandonedError`."""
        if (why := state.hanging.get(query.field)) is not None:
            raise TimeLimitError(why)
        tracker = state.tracker
        tracker.calls += 1
        tracker.subject = (state, query)
        try:
            return query.getters[0](self._module, state.handle)
        finally:
            self._returned(state, query, tracker)

    def _returned(self, state: CardState, query: Query, tracker: CallTracker) -> None:
        """A call has returned, perhaps too late."""
        tracker.subject = None
        if tracker.left:
            state.hanging.pop(query.field, None)  # it can be called again
            self.late_returns += 1
            raise AbandonedError

    def _hangs(self, state: CardState, query: Query) -> bool:
        """Whether a query must wait, for its own call or for others."""
        why = state.hanging.get(query.field)
        if why is None and len(state.hanging) >= MOST_HANGING:
            why = f"not asked while {len(state.hanging)} other calls hang: {'; '.join(state.hanging.copy().values())}"
        if why is not None:
            self.set_missing(state, query, why, problem=True)
        return why is not None

    def give_up(self, tracker: CallTracker, now: float, limit_s: float) -> bool:
        """Leave the present call of a job behind if it takes longer than `limit_s`. Then the job has to begin again on
        another thread."""
        waited_s, subject = tracker.waited_s(now), tracker.subject
        if subject is None:
            return False
        state, query = subject
        limit_s *= QUICKER if state.hanging else 1
        if waited_s < limit_s:
            return False
        calls = tracker.calls
        reason = f"{driver_function(tracker.thread) or 'the driver'} did not answer within {limit_s:g} s"
        state.hanging[query.field] = reason  # before the line is left: a call that comes back now takes it away again
        tracker.leave()
        if (
            tracker.calls != calls or tracker.subject is not subject
        ):  # it came back in between; the next call ends the thread
            state.hanging.pop(query.field, None)
            return True
        self.set_missing(state, query, reason, problem=True)
        return True

    def _failed(self, state: CardState, query: Query, number: int, error: Exception) -> bool:
        """Record why there is no answer; returns whether to try the next getter."""
        code = getattr(error, "value", None)
        if code == 0:  # "success" as an error: no samples yet
            self.set_missing(state, query, "the driver has no samples yet", problem=False)
            return False
        self.check(state, code)
        if isinstance(error, ValueError):
            self.set_missing(state, query, str(error), problem=query.expected)
            return False
        message = self.message(error)
        if not self._is_unsupported(error):
            # Asked again next time: it may pass, and a permission may be given.
            passing = "" if code == self.code("NO_PERMISSION") else " at present"
            self.set_missing(state, query, f"not available{passing}: {message}", problem=query.expected)
            return False
        state.unsupported[query.field] = number + 1
        if number + 1 == len(query.getters):
            self.set_unsupported(state, query, message)
        return True

    def set_unsupported(self, state: CardState, query: Query, message: str) -> None:
        """Record that the card does not have the field; in MIG mode that says nothing about the card."""
        if state.card is not None and state.card.mig_instance is not None:
            self.set_missing(state, query, "a MIG instance has none: see its card", problem=False)
        elif state.card is not None and state.card.mig:
            self.set_missing(state, query, "not reported in MIG mode", problem=False)
        else:
            known = message.startswith("not available") or message in state.hanging.values()
            self.set_missing(state, query, message if known else f"not available: {message}", problem=query.expected)

    def check(self, state: CardState, code: object) -> None:
        """Raise if an error code means that the card or NVML is gone."""
        if code == self._lost and state.device is not None:
            message = self._known_messages[self._lost]
            self.add_problem(state, None, message)
            raise CardLostError(message)
        if code in self._gone and not self._still_answers(state):
            raise NvmlGoneError(self.code_message(int(str(code))))

    def _still_answers(self, state: CardState) -> bool:
        """Whether NVML still counts its cards: then only one function failed, and other cards are not affected."""
        tracker = state.tracker
        tracker.calls += 1
        tracker.subject = (state, _COUNT)
        try:
            self._module.nvmlDeviceGetCount()
        except Exception:
            return False
        finally:
            self._returned(state, _COUNT, tracker)
        return True

    def set_missing(self, state: CardState, query: Query, message: str, *, problem: bool) -> None:
        """Record why there is no answer."""
        for field in query.fields:
            state.reasons[field] = message
        if problem:
            self.add_problem(state, query.field, message)

    def clear_reason(self, state: CardState, query: Query) -> None:
        """There is an answer (again): remove reason and problem."""
        for field in query.fields:
            state.reasons.pop(field, None)
        self.remove_problem(state, query.field)

    def forget(self, state: CardState) -> None:
        """Remove all reasons and problems of a card before it is queried again."""
        state.unsupported = {}
        state.reasons.clear()
        with self._lock:
            state.problems.clear()

    def add_problem(self, state: CardState, field: str | None, reason: str) -> None:
        """Add a problem; the first reason stays."""
        if field not in state.problems:
            with self._lock:
                state.problems[field] = Problem(reason, device=state.device, field=field)

    def remove_problem(self, state: CardState, field: str | None) -> None:
        """Remove a problem, if there is one."""
        if field in state.problems:
            with self._lock:
                state.problems.pop(field, None)

    def problems(self, state: Iterable[CardState]) -> tuple[Problem, ...]:
        """The problems of these cards, without duplicates."""
        with self._lock:
            return tuple(dict.fromkeys(problem for item in state for problem in item.problems.values()))

    def _is_unsupported(self, error: Exception) -> bool:
        """Whether the card, the driver or pynvml does not have it at all."""
        if isinstance(error, AttributeError) or type(error).__name__ == "NVMLLibraryMismatchError":
            return True  # no NVMLErrors: a function that this pynvml lacks, a driver without versioned getters
        return getattr(error, "value", None) in self._unsupported

    def code_message(self, code: int) -> str:
        """The message for an error code."""
        known = self._known_messages.get(code)
        return known if known is not None else self.message(self._module.NVMLError(code))

    def message(self, error: Exception) -> str:
        """The message for an exception of pynvml."""
        code = getattr(error, "value", None)
        if code in self._known_messages and code is not None and code != -1:
            return self._known_messages[code]
        if type(error).__name__ == "NVMLLibraryMismatchError":
            return "the driver is too old for it"
        if isinstance(error, AttributeError):
            return "this version of nvidia-ml-py does not know it"
        return str(error) or type(error).__name__

    def start_message(self, error: Exception) -> str:
        """Why NVML did not start, and what to do."""
        code = getattr(error, "value", None)
        library = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
        text = str(error)
        if code == self.code("LIBRARY_NOT_FOUND"):
            return f"no NVIDIA driver: {library} not found"
        if code == self.code("DRIVER_NOT_LOADED"):
            return "the NVIDIA driver is installed but not loaded: run modprobe nvidia, or reboot after an installation"
        if code == self.code("LIB_RM_VERSION_MISMATCH") or "version mismatch" in text.lower():
            return (
                "the NVIDIA driver and its library differ in version, as after an update: reboot or reload the driver"
            )
        if code == self.code("FUNCTION_NOT_FOUND") or isinstance(error, AttributeError):
            return f"the NVIDIA library {library} is too old or damaged: a function is missing ({text})"
        return f"NVML did not start: {self.message(error)}"


SPARE = 8
"""Entries behind the end of each list."""
MORE = 5
"""Entries that may have been added between two calls: a process that has just started."""
MOST_ENTRIES = 100_000
"""A longer list is wrong."""
_U64 = ctypes.c_ulonglong
_UNKNOWN_BYTES = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE, as the memory of a process."""


class _ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t and _v3: pynvml's own classes have other names in other releases."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", _U64),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    )


_ROOMS: dict[tuple[type, int], Any] = {}


def _room(kind: Any, count: int) -> Any:
    """An empty list for `count` entries. The types are kept: making one costs more than a call."""
    of = _ROOMS.get((kind, count))
    if of is None:
        of = _ROOMS[kind, count] = kind * (count + SPARE)
    return of()


def _with_room(name: str, plain: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call the decorated function with NVML's own function of this name, where there are function pointers.

    A replacement has none: its function, which may go by a `plain` name, is called as it is. Raises NVMLError when the
    driver lacks it.
    """

    def decorate(ours: Callable[..., Any]) -> Callable[..., Any]:
        def call(nvml: Any, *arguments: Any) -> Any:
            find = getattr(nvml, "_nvmlGetFunctionPointer", None)
            return getattr(nvml, plain or name)(*arguments) if find is None else ours(find(name), nvml, *arguments)

        return call

    return decorate


@_with_room("nvmlDeviceGetFieldValues")
def nvmlDeviceGetFieldValues(function: Any, nvml: Any, handle: Any, wanted: Sequence[tuple[int, int]]) -> Any:
    """One value for each (field, scope)."""
    values = _room(nvml.c_nvmlFieldValue_t, len(wanted))
    for value, (field, scope) in zip(values, wanted, strict=False):
        value.fieldId, value.scopeId = field, scope
    code = function(handle, ctypes.c_int(len(wanted)), ctypes.byref(values))
    if code:
        raise nvml.NVMLError(code)
    return values[: len(wanted)]


def running_processes(kind: str, version: int) -> Any:
    """The function that lists who uses a card: `kind` is `Compute` or `Graphics`."""
    name = f"nvmlDeviceGet{kind}RunningProcesses_v{version}"

    @_with_room(name, name.removesuffix("_v3"))  # pynvml's newest goes by the name without a version
    def nvmlDeviceGetRunningProcesses(function: Any, nvml: Any, handle: Any) -> list[Any]:
        result = _listed(nvml, _ProcessInfo, lambda count, room: function(handle, count, room))
        return [SimpleNamespace(pid=item.pid, usedGpuMemory=_known(item.usedGpuMemory)) for item in result]

    return nvmlDeviceGetRunningProcesses


def _known(memory: int) -> int | None:
    return None if memory == _UNKNOWN_BYTES else memory


@_with_room("nvmlDeviceGetProcessUtilization")
def nvmlDeviceGetProcessUtilization(function: Any, nvml: Any, handle: Any, since: int) -> Iterable[Any]:
    """Samples of each process after `since` (the driver's microseconds). Raises `NVMLError(0)` when there are none, as
    pynvml does."""
    kind = nvml.c_nvmlProcessUtilizationSample_t
    samples = _listed(nvml, kind, lambda count, room: function(handle, room, count, _U64(since)))
    if not samples:
        raise nvml.NVMLError(0)
    return samples


@_with_room("nvmlDeviceGetRetiredPages")
def nvmlDeviceGetRetiredPages(function: Any, nvml: Any, handle: Any, cause: int) -> Sequence[Any]:
    """Addresses of the pages taken out of use."""
    return _listed(nvml, _U64, lambda count, room: function(handle, ctypes.c_uint(cause), count, room))


def affinity(nvml: Any, name: str, handle: Any, count: int, *scope: int) -> Sequence[int]:
    """CPUs or NUMA nodes near a card, as bits of so many 64-bit words: `nvmlDeviceGetCpuAffinity`,
    `nvmlDeviceGetMemoryAffinity`."""

    @_with_room(name)
    def near(function: Any, nvml: Any, *_: Any) -> Sequence[int]:
        bits = _room(ctypes.c_ulong, count)
        code = function(handle, ctypes.c_uint(count), ctypes.byref(bits), *map(ctypes.c_uint, scope))
        if code:
            raise nvml.NVMLError(code)
        return list(bits[:count])

    result: Sequence[int] = near(nvml, handle, count, *scope)
    return result


def _listed(nvml: Any, kind: type, ask: Any) -> list[Any]:
    """A list whose length the driver decides: asked how long it is, then for it, with room for some that join
    meanwhile.

    A length that the driver gives afterwards and that is longer than the room it had is wrong: what is there counts.
    """
    count = ctypes.c_uint(0)
    code = ask(ctypes.byref(count), None)
    if code == 0 and count.value == 0:
        return []
    if code not in (0, nvml.NVML_ERROR_INSUFFICIENT_SIZE):
        raise nvml.NVMLError(code)
    if count.value > MOST_ENTRIES:
        raise ValueError(f"the driver answers {count.value} entries, which cannot be right")
    expected_count = 2 * count.value + MORE
    room = _room(kind, _steps(expected_count))
    count.value = expected_count
    code = ask(ctypes.byref(count), room)
    if code:
        raise nvml.NVMLError(code)
    return list(room[: min(count.value, expected_count)])


def _steps(count: int) -> int:
    """Rounded up, so that few types are made."""
    return -(-count // 32) * 32
