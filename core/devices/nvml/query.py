"""The one place for everything that can go wrong with a question to NVML. Sampler threads; no torch, no Qt.

A question has one or more ways to ask it. What fails becomes None and a reason in words; a `Problem` too, when it is
about something that one would expect of any card. Only two things end a reading: the card is lost, or NVML itself is.

Every call is noted on the `CallTracker` of the job that makes it. Whoever waits for the job calls `give_up`; a call
that hangs is not made again until it has come back, and its question is answered with None and that reason.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from devexplorer.core.devices.nvml_card import Card, ProcessFacts
from devexplorer.core.devices.time_limit import AbandonedError, CallTracker, TimeLimitError, driver_function
from devexplorer.core.records.devices import Problem

Getter = Callable[[Any, Any], Any]
"""One way to ask: `way(pynvml, handle)`. It raises what pynvml raises, and ValueError for an answer that cannot be
right."""

_LACKING = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "INVALID_ARGUMENT", "DEPRECATED")
"""Asking again is useless until the cards are listed again."""

_GONE = ("UNINITIALIZED", "DRIVER_NOT_LOADED")
"""NVML itself has stopped: nothing has an answer until it is started again."""

MOST_HANGING = 3
"""So many calls of a card may hang at once: after that it is asked nothing more until one of them comes back."""
QUICKER = 0.2
"""Part of the time limit that other calls of a card have while one of its calls hangs."""


class Query(NamedTuple):
    """What is asked of a card, in order of preference; the next way is tried where the one before is lacking."""

    field: str
    """Of `DeviceSample` or `DeviceDetails`."""
    ways: tuple[Getter, ...]
    expected: bool = False
    """Whether a card that does not tell is worth a `Problem`; most cards lack something (a GeForce has no ECC)."""
    also: tuple[str, ...] = ()
    """Fields that come with the same answer, and are missing for the same reason."""
    parts: bool = False
    """Whether a part of the answer can be refused: it then has `refused`, field -> why."""
    text: bool = False
    """Whether the answer is text: bytes in it that are no UTF-8 are then replaced."""
    many: bool = False
    """Whether it makes many calls, each of which has the time limit for itself."""


_COUNT = Query("still_there", ())
NO_TEXT = "the driver answers bytes that are no text, which cannot be right"


class CardLostError(Exception):
    """The card fell off the bus: no other question to it has an answer."""


class NvmlGoneError(Exception):
    """NVML has stopped answering for all cards."""


class _CallCounter:
    """pynvml for a question of many calls: each is noted, so that a hundred quick ones are not taken for one that
    hangs."""

    __slots__ = ("_line", "_module")

    def __init__(self, module: Any, line: CallTracker) -> None:
        self._module, self._line = module, line

    def __getattr__(self, name: str) -> Any:
        self._line.calls += 1
        return getattr(self._module, name)


class CardState:
    """What is remembered of a card between questions (`device` None: of the machine). One thread reads a card."""

    __slots__ = (
        "busy", "card", "counters", "device", "handle", "hanging", "lacking", "line", "people", "problems",
        "processes_seen", "reasons",
    )  # fmt: skip

    def __init__(
        self,
        device: str | None,
        card: Card | None = None,
        handle: Any = None,
        *,
        line: CallTracker | None = None,
        hanging: dict[str, str] | None = None,
    ) -> None:
        self.device = device
        self.line = line if line is not None else CallTracker()
        """Of the job that is asking."""
        self.hanging = hanging if hanging is not None else {}
        """Questions whose call has not come back -> the reason in words. Shared by all that is remembered of one
        place."""
        self.card = card
        self.handle = handle
        self.busy = False
        """Whether its thread is inside a reading."""
        self.lacking: dict[str, int] = {}
        """Field -> how many of its ways need not be tried."""
        self.reasons: dict[str, str] = {}
        """Field -> why it is not known."""
        self.problems: dict[str | None, Problem] = {}
        self.counters: dict[tuple[str, int], tuple[float, int]] = {}
        """Of NVLink traffic: name and link -> when it was read (monotonic seconds), bytes."""
        self.people: dict[int, ProcessFacts] = {}
        """Processes of the reading before, so that each is looked up once."""
        self.processes_seen = 0
        """Driver's time stamp of the newest sample of process utilization, microseconds."""

    @property
    def known_card(self) -> Card:
        """The card; not for what is remembered of the machine."""
        assert self.card is not None
        return self.card

    def ask_again(self) -> None:
        """Forget what the card was found to lack: after a listing it may be another driver or another MIG mode."""
        self.lacking = {}


class QueryRunner:
    """Asks, and remembers what has no answer and why. Safe from several threads, each with cards of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._module: Any = None
        self._lacking: frozenset[int] = frozenset()
        self._gone: frozenset[int] = frozenset()
        self._lost = -1
        self._known_words: dict[int, str] = {}
        self.came_back = 0
        """How many calls have returned that were given up."""
        self._hanging: dict[tuple[int | str, int | str | None], dict[str, str]] = {}

    def hanging_at(self, index: int | str, part: int | str | None = None) -> dict[str, str]:
        """The calls that hang for a place in NVML's list, whatever card is there: `CardState.hanging`."""
        return self._hanging.setdefault((index, part), {})

    @property
    def any_hangs(self) -> bool:
        """Whether a call is still inside the driver that was given up."""
        return any(self._hanging.copy().values())

    @property
    def module(self) -> Any:
        """pynvml, or what stands in for it; None before it was needed."""
        return self._module

    @module.setter
    def module(self, module: Any) -> None:
        self._module = module
        self._lacking = frozenset(self.code(name) for name in _LACKING)
        self._gone = frozenset(self.code(name) for name in _GONE)
        self._lost = self.code("GPU_IS_LOST")
        self._known_words = {
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
        """The number of an error; -1 where this pynvml does not know it."""
        return int(getattr(self._module, f"NVML_ERROR_{name}", -1))

    def ask(self, opened: CardState, question: Query) -> Any:
        """The first answer, or None with a reason. Raises `CardLostError`, `NvmlGoneError` and `AbandonedError`."""
        field, ways, line = question.field, question.ways, opened.line
        if opened.hanging and self._hangs(opened, question):
            return None
        for number in range(opened.lacking.get(field, 0), len(ways)):
            line.calls += 1
            line.subject = (opened, question)
            try:
                answer = ways[number](
                    _CallCounter(self._module, line) if question.many else self._module, opened.handle
                )
            except UnicodeDecodeError as error:  # names come as bytes, and pynvml insists on UTF-8
                self._returned(opened, question, line)
                if not question.text:
                    self.miss(
                        opened,
                        question,
                        "the driver answers bytes that are no text, which cannot be right",
                        problem=question.expected,
                    )
                    return None
                answer = bytes(error.object).decode("utf-8", "replace")
            except Exception as error:
                self._returned(opened, question, line)
                if self._failed(opened, question, number, error):
                    continue
                return None
            line.subject = None
            if line.left:
                self._returned(opened, question, line)
            if question.parts:
                if answer.refused or (opened.reasons and not opened.reasons.keys().isdisjoint((field, *question.also))):
                    self._settle_parts(opened, question, answer.refused)
            elif field in opened.reasons:
                self.settle(opened, question)
            return answer
        return None

    def _settle_parts(self, opened: CardState, question: Query, refused: Mapping[str, str]) -> None:
        """There is an answer, as a whole or without some parts that cannot be right."""
        for field in (question.field, *question.also):
            if (why := refused.get(field)) is not None:
                opened.reasons[field] = why
                self.note(opened, field, why)
            else:
                opened.reasons.pop(field, None)
                self.withdraw(opened, field)

    def call(self, opened: CardState, question: Query) -> Any:
        """The answer of the first way, or what it raises. Raises `TimeLimitError` while an earlier call hangs, and
        `AbandonedError`."""
        if (why := opened.hanging.get(question.field)) is not None:
            raise TimeLimitError(why)
        line = opened.line
        line.calls += 1
        line.subject = (opened, question)
        try:
            return question.ways[0](self._module, opened.handle)
        finally:
            self._returned(opened, question, line)

    def _returned(self, opened: CardState, question: Query, line: CallTracker) -> None:
        """A call has come back; too late, perhaps."""
        line.subject = None
        if line.left:
            opened.hanging.pop(question.field, None)  # it can be asked again
            self.came_back += 1
            raise AbandonedError

    def _hangs(self, opened: CardState, question: Query) -> bool:
        """Whether a question has to wait for its own call, or for those of others."""
        why = opened.hanging.get(question.field)
        if why is None and len(opened.hanging) >= MOST_HANGING:
            why = f"not asked while {len(opened.hanging)} other calls hang: {'; '.join(opened.hanging.copy().values())}"
        if why is not None:
            self.miss(opened, question, why, problem=True)
        return why is not None

    def give_up(self, line: CallTracker, now: float, limit_s: float) -> bool:
        """Leave the present call of a job behind if it takes longer than `limit_s`. Then the job has to begin again on
        another thread."""
        waited_s, subject = line.waited_s(now), line.subject
        if subject is None:
            return False
        opened, question = subject
        limit_s *= QUICKER if opened.hanging else 1
        if waited_s < limit_s:
            return False
        calls = line.calls
        reason = f"{driver_function(line.thread) or 'the driver'} did not answer within {limit_s:g} s"
        opened.hanging[question.field] = (
            reason  # before the line is left: a call that comes back now takes it away again
        )
        line.leave()
        if line.calls != calls or line.subject is not subject:  # it came back in between; the next call ends the thread
            opened.hanging.pop(question.field, None)
            return True
        self.miss(opened, question, reason, problem=True)
        return True

    def _failed(self, opened: CardState, question: Query, number: int, error: Exception) -> bool:
        """State why there is no answer; whether the next way is worth a try."""
        code = getattr(error, "value", None)
        if code == 0:  # "success" as an error: no samples yet
            self.miss(opened, question, "the driver has no samples yet", problem=False)
            return False
        self.check(opened, code)
        if isinstance(error, ValueError):
            self.miss(opened, question, str(error), problem=question.expected)
            return False
        words = self.words(error)
        if not self._is_lacking(error):
            # Asked again next time: it may pass, and a permission may be given.
            passing = "" if code == self.code("NO_PERMISSION") else " at present"
            self.miss(opened, question, f"not available{passing}: {words}", problem=question.expected)
            return False
        opened.lacking[question.field] = number + 1
        if number + 1 == len(question.ways):
            self.lack(opened, question, words)
        return True

    def lack(self, opened: CardState, question: Query, words: str) -> None:
        """The card does not have it; in MIG mode that says nothing about the card."""
        if opened.card is not None and opened.card.mig_instance is not None:
            self.miss(opened, question, "a MIG instance has none of its own: see its card", problem=False)
        elif opened.card is not None and opened.card.mig:
            self.miss(opened, question, "not told in MIG mode", problem=False)
        else:
            known = words.startswith("not available") or words in opened.hanging.values()
            self.miss(opened, question, words if known else f"not available: {words}", problem=question.expected)

    def check(self, opened: CardState, code: object) -> None:
        """Raise when an error code means that the card, or NVML itself, is gone."""
        if code == self._lost and opened.device is not None:
            words = self._known_words[self._lost]
            self.note(opened, None, words)
            raise CardLostError(words)
        if code in self._gone and not self._still_answers(opened):
            raise NvmlGoneError(self.code_words(int(str(code))))

    def _still_answers(self, opened: CardState) -> bool:
        """Whether NVML counts its cards: then it was one function that said that NVML is gone, and no other card is
        concerned."""
        line = opened.line
        line.calls += 1
        line.subject = (opened, _COUNT)
        try:
            self._module.nvmlDeviceGetCount()
        except Exception:
            return False
        finally:
            self._returned(opened, _COUNT, line)
        return True

    def miss(self, opened: CardState, question: Query, words: str, *, problem: bool) -> None:
        """There is no answer, and this is why."""
        for field in (question.field, *question.also):
            opened.reasons[field] = words
        if problem:
            self.note(opened, question.field, words)

    def settle(self, opened: CardState, question: Query) -> None:
        """There is an answer (again): withdraw the reason and the problem, if there was one."""
        for field in (question.field, *question.also):
            opened.reasons.pop(field, None)
        self.withdraw(opened, question.field)

    def forget(self, opened: CardState) -> None:
        """Withdraw every reason and problem of a card: it is about to be asked anew."""
        opened.ask_again()
        opened.reasons.clear()
        with self._lock:
            opened.problems.clear()

    def note(self, opened: CardState, field: str | None, reason: str) -> None:
        """A problem, once; the first reason stays."""
        if field not in opened.problems:
            with self._lock:
                opened.problems[field] = Problem(reason, device=opened.device, field=field)

    def withdraw(self, opened: CardState, field: str | None) -> None:
        """The problem is over, if there was one."""
        if field in opened.problems:
            with self._lock:
                opened.problems.pop(field, None)

    def problems(self, opened: Iterable[CardState]) -> tuple[Problem, ...]:
        """Of these cards, each reason once."""
        with self._lock:
            return tuple(dict.fromkeys(problem for one in opened for problem in one.problems.values()))

    def _is_lacking(self, error: Exception) -> bool:
        """Whether asking again is useless: the card, the driver or pynvml itself does not have it."""
        if isinstance(error, AttributeError) or type(error).__name__ == "NVMLLibraryMismatchError":
            return True  # no NVMLErrors: a function that this pynvml lacks, a driver without versioned getters
        return getattr(error, "value", None) in self._lacking

    def code_words(self, code: int) -> str:
        """What an error code says."""
        known = self._known_words.get(code)
        return known if known is not None else self.words(self._module.NVMLError(code))

    def words(self, error: Exception) -> str:
        """What an exception of pynvml says."""
        code = getattr(error, "value", None)
        if code in self._known_words and code is not None and code != -1:
            return self._known_words[code]
        if type(error).__name__ == "NVMLLibraryMismatchError":
            return "the driver is too old for it"
        if isinstance(error, AttributeError):
            return "this version of nvidia-ml-py does not know it"
        return str(error) or type(error).__name__

    def start_words(self, error: Exception) -> str:
        """Why NVML did not start, and what would help."""
        code = getattr(error, "value", None)
        library = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
        text = str(error)
        if code == self.code("LIBRARY_NOT_FOUND"):
            return f"no NVIDIA driver is installed here ({library} was not found)"
        if code == self.code("DRIVER_NOT_LOADED"):
            return "the NVIDIA driver is installed but not loaded: run modprobe nvidia, or reboot after an installation"
        if code == self.code("LIB_RM_VERSION_MISMATCH") or "version mismatch" in text.lower():
            return (
                "the NVIDIA driver and its library differ in version, as after an update: reboot or reload the driver"
            )
        if code == self.code("FUNCTION_NOT_FOUND") or isinstance(error, AttributeError):
            return f"the NVIDIA library {library} is too old or damaged: a function is missing ({text})"
        return f"NVML did not start: {self.words(error)}"
