"""The rule `hard-coded-device`: a device in the user's own line. The threads on which the model is built
and run."""

from __future__ import annotations

import os
from pathlib import Path
from types import CodeType, FrameType

from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.hard_coded.written import Argument, Written, written_at
from devexplorer.core.isolation.source_location import SourceLocation, kind_of, place_at
from devexplorer.core.virtual.cuda import emulation
from devexplorer.core.virtual.cuda.observer import Observer

RULE = "hard-coded-device"
_EMULATION = str(Path(emulation.__file__).parent) + os.sep
_CORE = str(Path(__file__).parents[2]) + os.sep
_MODULES = os.path.join("torch", "nn", "modules", "module.py")
_UNKNOWN = object()


def asking(frame: FrameType | None) -> tuple[FrameType | None, bool]:
    """The line of a model (or of a library in it) that asks torch for something, and whether torch's own code is in
    between.

    None where it is the doctor itself that asks.
    """
    between = False
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file.startswith(_EMULATION) or code.co_name == "__torch_function__":
            frame = frame.f_back  # a mode that only passes on what it was asked
            continue
        if kind_of(file) != "skipped":
            return frame, between
        if file.startswith(_CORE):
            return None, between
        between = True
        frame = frame.f_back
    return None, between


def line_of(frame: FrameType | None) -> SourceLocation | None:
    """The line at which a frame is; None for no frame, and for torch's code."""
    return None if frame is None else place_at(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def running(frame: FrameType | None) -> bool:
    """Whether a frame runs within a module's forward (or in its backward) rather than while the model is made."""
    while frame is not None:
        code = frame.f_code
        if (
            code.co_name == "_call_impl" and code.co_filename.endswith(_MODULES)
        ) or code.co_name == "_engine_run_backward":
            return True
        frame = frame.f_back
    return False


class HardCoded(Observer):
    """Looks at each call that names a device, and remembers what the code there says."""

    def __init__(self, collector: FindingCollector, cards: int) -> None:
        self._collector = collector
        self._cards = cards
        self._known: dict[tuple[CodeType, int], Written | Argument | None] = {}

    def seen(self, frame: FrameType | None, argument: str | None = None) -> None:
        """See `Observer`."""
        at, between = asking(frame)
        otherwise: tuple[Written, FrameType, bool] | None = None
        while at is not None:
            key = (at.f_code, at.f_lasti)
            result = self._known.get(key, _UNKNOWN)
            if result is _UNKNOWN:
                result = self._known[key] = written_at(at, argument)
            if isinstance(result, Written):
                self._add(result, at, between)
                return
            if isinstance(result, Argument):
                argument = result.name
                if result.otherwise is not None and otherwise is None:
                    otherwise = result.otherwise, at, between
            elif kind_of(at.f_code.co_filename) != "library":
                break
            while at is not None and at.f_code.co_name in ("<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>"):
                at = at.f_back
            at, between = asking(at.f_back) if at is not None else (None, True)
        if otherwise is not None:
            self._add(*otherwise)

    def missing(self, name: str, frame: FrameType | None) -> None:
        """See `Observer`."""
        at, _ = asking(frame)
        if at is None:
            return
        cards = f"{self._cards} cards, cuda:0 to cuda:{self._cards - 1}" if self._cards > 1 else "one card, cuda:0"
        self._collector.add(
            RULE,
            f"`{name}` is not there: this machine has {cards}.",
            "Take the device from a tensor at hand, as in `device=x.device`, or let the caller pass it.",
            place=line_of(at),
            severity="error",
        )

    def not_checked(self, what: str, why: str, frame: FrameType | None) -> None:
        """See `Observer`."""
        self._collector.not_checked(what, why, line_of(asking(frame)[0]))

    def _add(self, result: Written, frame: FrameType, between: bool) -> None:
        at_work = running(frame)
        place = line_of(frame)
        assert place is not None
        if (result.asks or result.default) and not at_work:
            return
        if between and self._collector.has(RULE, place):
            return  # one `.cuda()` of a module moves many parameters
        if result.asks:
            severity = "note"
        elif result.default or not (at_work or result.card):
            severity = "warning"
        else:
            severity = "error"
        message = _message(result, place, _where(frame), at_work)
        self._collector.add(RULE, message, _fix(result, at_work), place=place, severity=severity)


def _where(frame: FrameType | None) -> str:
    """The function that a line is in, in words: the one around it where it is in a comprehension or a lambda."""
    parts = (
        [part for part in frame.f_code.co_qualname.split(".") if not part.startswith("<")] if frame is not None else []
    )
    return f"in `{parts[-1]}`" if parts else "at the top of the file"


def _message(result: Written, place: SourceLocation, where: str, at_work: bool) -> str:
    what = f"`{result.text}`"
    if result.name:
        file = "" if os.path.abspath(result.file) == place.file else f" of {os.path.basename(result.file)}"
        what = f"`{result.name}`, which is {what} in line {result.line}{file},"
    cuda = "CUDA" if "cuda" in result.text else "such a device"
    if result.default:
        given = f"`{result.name}` is what `__init__` was given, by default `{result.text}` (line {result.line}),"
        return f"{given} and stays that when the model moves."
    card = "one fixed card" if result.card else "the current card"
    if result.asks:
        return f"{what} {where} asks for {cuda} first and then takes {card}, whatever card the rest of the model is on."
    without = f"a machine without {cuda}" if not result.card else "a machine that has no such card"
    if at_work:
        return f"{what} {where} fails on {without}, and puts this on {card} whatever card the rest of the model is on."
    return (
        f"{what} {where} fails on {without}, and puts this on {card} when the model is made, even if it is"
        " wanted elsewhere."
    )


def _fix(result: Written, at_work: bool) -> str:
    if not at_work:
        return (
            "Leave it out: the user of the model places it, with `model.to(device)`; or take the device as an argument."
        )
    instead = "`.to(x.device)`" if result.text.startswith(".cuda") else "`device=x.device`"
    return (
        f"Take the device from a tensor at hand, as in {instead}; what belongs to the model is a buffer, which"
        " `model.to(device)` moves."
    )
