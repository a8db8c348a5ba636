"""Driver faults, one at a time: each NVML function hangs, fails, returns nonsense or loses its card; checks what is
then shown.

The real pynvml runs on the fake driver library with its time held, so that a healthy machine always says the same. A
case is a function, a kind of fault and a surface (`devices`, `watch`); card 1 has the fault, card 0 is well. `run_case`
returns what is wrong with what was shown, in words; nothing means that all is as it should be:

    the good card says what it always says of the card with the fault each figure is what it was, or null with a reason;
    after a lie it is at least one that a card can have nothing raises, and what answers is there within a second
"""

from __future__ import annotations

import ctypes
import importlib
import io
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from devexplorer.core.base.time_limit import any_abandoned
from devexplorer.core.cli import devices as devices_module
from devexplorer.core.cli.arguments import parse
from devexplorer.core.cli.torch_answers import TorchAnswers
from devexplorer.core.devices.drm import Drm
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.devices.plausible import RANGES
from devexplorer.core.feature import features
from fakes.nvml_library import NvmlLibrary

ERROR_CODES = (*range(1, 30), 999)
"""Of nvml.h, whether a function of that kind can return them or not."""
LIES = ("zero", "maximum", "garbage")
VANISHING = ("card is lost", "card is unplugged", "driver is unloaded")
LIMIT_S = 0.3
"""Of a call, here. Only a busy machine makes a call take so long."""
STALL_S = 1.0
"""Values that answer are present after this time, whatever hangs."""
STALLS_S = {"window": 2.5}
"""The window is read until nothing more arrives; a separate check requires the healthy card in time."""
WELL, ILL = 0, 1
_NOWHERE = Path("/nonexistent")
MODELS = ["h200", "h200"]
_MOVING = (
    "time_unix_s",
    "age_s",
    "processes",
    "pcie_tx_bytes_s",
    "pcie_rx_bytes_s",
    "nvlink_tx_bytes_s",
    "nvlink_rx_bytes_s",
)
"""Fields that vary between runs, or rates of counters that do not advance here."""
_OLDER_WAY = {"memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"}
"""Without the newer function, the older one counts reserved memory as used."""


class Case(NamedTuple):
    """One fault on one surface."""

    surface: str
    function: str
    kind: str
    """`hangs`, `fails`, `lies`, `vanishes`"""
    what: str | int = ""
    """The code, the kind of nonsense, or what is lost."""

    def __str__(self) -> str:
        return f"{self.surface}: {self.function} {self.kind} {self.what}".strip()


class Outcome(NamedTuple):
    """The result."""

    case: Case
    seconds: float
    wrong: tuple[str, ...]


def cases(library: NvmlLibrary, surfaces: tuple[str, ...], codes: tuple[int, ...] = ERROR_CODES) -> Iterator[Case]:
    """All of them."""
    for surface in surfaces:
        for function in library.functions:
            yield Case(surface, function, "hangs")
            for code in codes:
                yield Case(surface, function, "fails", code)
            for lie in LIES:
                yield Case(surface, function, "lies", lie)
            for what in VANISHING:
                yield Case(surface, function, "vanishes", what)


class Bench:
    """The library with two cards, and the output of each surface on a healthy machine."""

    def __init__(self, library: NvmlLibrary, *, timed: bool = False) -> None:
        self.library = library
        self.timed = timed
        """Whether more than a second is wrong; not on busy machines."""
        self.healthy: dict[str, dict[str, Any]] = {}
        for surface in SURFACES:
            for _ in range(2):  # the first run imports modules and fills paint caches
                self.reset()
                self.healthy[surface] = shown(surface)

    def reset(self) -> None:
        """Two healthy cards."""
        self.library.release()
        self.library.reset(MODELS)
        self.library.driver(True)
        self.library.freeze(1000.0)
        self.library.delay(0)

    def run_case(self, case: Case) -> Outcome:
        """Set up the fault, read, check, and restore everything."""
        self.reset()
        started = time.perf_counter()
        said: list[str] = []
        try:
            with self._fault(case), _heard_exceptions(said):
                found = shown(case.surface)
            wrong = (*self._wrong(case, found), *said)
        except Exception as error:
            wrong = (f"raises {type(error).__name__}: {error}", *said)
        seconds = time.perf_counter() - started
        self.library.release()
        until = time.monotonic() + 10
        while any_abandoned() and time.monotonic() < until:
            time.sleep(0.001)
        if self.timed and seconds > STALLS_S.get(case.surface, STALL_S):
            wrong = (*wrong, f"took {seconds:.2f} s")
        while self.library.initialised:
            self.library.lib.nvmlShutdown()
        return Outcome(case, seconds, wrong)

    @contextmanager
    def _fault(self, case: Case) -> Iterator[None]:
        if case.kind == "hangs":
            self.library.block(case.function, card=ILL)
            self.library.block(case.function)  # for those without a card
            self._unblock_the_good_card(case.function)
            yield
        elif case.kind == "fails":
            self.library.fail(case.function, int(case.what), card=ILL)
            yield
        elif case.kind == "lies":
            with _wrapped(case.function, _liar(str(case.what))):
                yield
        else:
            with _wrapped(case.function, self._thief(str(case.what))):
                yield

    def _unblock_the_good_card(self, function: str) -> None:
        self.library.lib.fake_nvml_unblock(function.encode(), WELL)

    def _thief(self, what: str) -> Callable[[Any, tuple[Any, ...]], int]:
        def call(function: Any, arguments: tuple[Any, ...]) -> int:
            if what == "card is lost":
                self.library.lose(ILL)
            elif what == "card is unplugged":
                self.library.unplug(ILL)
            else:
                self.library.driver(False)
            return int(function(*arguments))

        return call

    def _wrong(self, case: Case, found: dict[str, Any]) -> Iterator[str]:
        healthy = self.healthy[case.surface]
        machine_wide = case.kind != "fails" and (not _is_of_a_card(case.function) or case.what == "driver is unloaded")
        good, ill = found.get(f"nvml:{WELL}"), found.get(f"nvml:{ILL}")
        if good is None:
            if not machine_wide:
                yield "the good card is not shown"
        elif not machine_wide:
            before = healthy[f"nvml:{WELL}"]
            yield from (
                f"the good card's {name} is {value!r}, was {before[name]!r}"
                for name, value in good.items()
                if name in before and name not in (*_MOVING, "missing", "unavailable") and value != before[name]
            )
        for number, card in ((WELL, good), (ILL, ill)):
            if card is not None:
                yield from self._odd(case, number, card, healthy[f"nvml:{number}"])

    def _odd(self, case: Case, number: int, card: dict[str, Any], before: dict[str, Any]) -> Iterator[str]:
        for name, value in card.items():
            if name.endswith("missing") or name in ("unavailable", "problem", "age_s"):
                continue
            if value is None:
                if before.get(name) is not None and name not in card["missing"] and name not in ("uuid", "parent"):
                    yield f"nvml:{number}: {name} is null without a reason"
            elif name in RANGES:
                least, most, _ = RANGES[name]
                if not least <= value <= most:
                    yield f"nvml:{number}: {name} is {value!r}"
                elif (
                    case.kind != "lies" and value != before.get(name) and name not in _MOVING and name not in _OLDER_WAY
                ):
                    yield f"nvml:{number}: {name} is {value!r}, was {before.get(name)!r}"


@contextmanager
def _heard_exceptions(said: list[str]) -> Iterator[None]:
    """Collects exceptions of threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            threading,
            "excepthook",
            lambda raised: said.append(f"a thread raises {raised.exc_type.__name__}: {raised.exc_value}"),
        )
        patch.setattr(sys, "excepthook", lambda kind, error, _: said.append(f"raises {kind.__name__}: {error}"))
        yield


def _is_of_a_card(function: str) -> bool:
    return function.startswith("nvmlDevice") and function != "nvmlDeviceGetCount_v2"


# --- the surfaces


def shown(surface: str) -> dict[str, Any]:
    """Its output: device -> fields by name, and `missing`, the reasons for null fields."""
    return SURFACES[surface]()


def _nvml() -> Nvml:
    return Nvml(
        hidden_processes=lambda: False,
        driver_cards=frozenset,
        process_facts=_nobody,
        process_load=_no_load,
        limit_s=LIMIT_S,
        start_limit_s=LIMIT_S,
        open_limit_s=LIMIT_S,
    )


def _nobody(pid: int) -> Any:
    from devexplorer.core.devices.nvml_card import ProcessFacts

    return ProcessFacts(f"program-{pid}")


def _no_load(_pid: int) -> Any:
    from devexplorer.core.devices.nvml_card import ProcessLoad

    return ProcessLoad()


class _NoTorch:
    """Does not use torch."""

    def answers(self) -> TorchAnswers:
        return TorchAnswers.nothing("torch is not asked")

    def close(self) -> None:
        """Nothing to end."""


def _devices() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices_module, "TorchQuestion", _NoTorch)
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with redirect_stdout(out):
            code = devices_module.devices(parse(["devices", "--json"]), _nvml(), Drm(root=_NOWHERE))
        assert code == 0, f"exit code {code}"
        assert isinstance(out.buffer, io.BytesIO)
        made = json.loads(out.buffer.getvalue())
    return {
        device["id"]: {
            **device["details"],
            **device["sample"],
            **{k: v for k, v in device.items() if k not in ("details", "sample")},
        }
        | {"missing": device["details"]["missing"]}
        for device in made["devices"]
    }


def _watch() -> dict[str, Any]:
    from devexplorer.core.watch.command import document
    from devexplorer.core.watch.devices import WatchedDevices

    with WatchedDevices(None, 0.01, _nvml(), Drm(root=_NOWHERE), once=True) as devices:
        readings, _ = devices.read()
    made = [json.loads(json.dumps(document(reading))) for reading in readings]
    return {one["device"]: {**one, "missing": one["unavailable"]} for one in made}


SURFACES: dict[str, Callable[[], dict[str, Any]]] = {"devices": _devices}
if "watch" in features():
    SURFACES["watch"] = _watch


# --- between pynvml and the driver


@contextmanager
def _wrapped(name: str, call: Callable[[Any, tuple[Any, ...]], int]) -> Iterator[None]:
    """Send calls of one function for the faulty card, or without a card, through `call`."""
    pynvml = importlib.import_module("pynvml")
    find = pynvml._nvmlGetFunctionPointer

    def found(wanted: str) -> Any:
        function = find(wanted)
        if wanted != name:
            return function

        def between(*arguments: Any) -> int:
            return call(function, arguments) if _concerns(arguments) else int(function(*arguments))

        return between

    def _concerns(arguments: tuple[Any, ...]) -> bool:
        if name == "nvmlDeviceGetHandleByIndex_v2":
            return int(getattr(arguments[0], "value", arguments[0])) == ILL
        if not _is_of_a_card(name):
            return True
        handle = ctypes.c_void_p()
        raw = ctypes.CDLL(pynvml.nvmlLib._name)
        index = _index_of(raw, handle, arguments[0])
        return index == ILL

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pynvml, "_nvmlGetFunctionPointer", found)
        yield


def _index_of(raw: Any, handle: ctypes.c_void_p, asked: Any) -> int | None:
    wanted = ctypes.cast(asked, ctypes.c_void_p).value
    for index in (WELL, ILL):
        if raw.fake_nvml_handle(index, -1, ctypes.byref(handle)) == 0 and handle.value == wanted:
            return index
    return None


def _liar(lie: str) -> Callable[[Any, tuple[Any, ...]], int]:
    """Lets the driver answer, then overwrites the answer."""
    dice = random.Random(lie)

    def call(function: Any, arguments: tuple[Any, ...]) -> int:
        code = int(function(*arguments))
        if code == 0:
            for argument in arguments[1:] if len(arguments) > 1 else arguments:
                target = getattr(argument, "_obj", argument)  # what `byref` points to
                if isinstance(target, (ctypes.Structure, ctypes.Array, ctypes._SimpleCData)) and not _is_input(
                    argument
                ):
                    _write_over(target, lie, dice)
        return code

    return call


def _is_input(argument: Any) -> bool:
    """Inputs are numbers by value; outputs are pointers or lists."""
    return isinstance(argument, ctypes._SimpleCData)


def _write_over(target: Any, lie: str, dice: random.Random) -> None:
    size = ctypes.sizeof(target)
    if lie == "garbage":
        ctypes.memmove(ctypes.byref(target), dice.randbytes(size), size)
    else:
        ctypes.memset(ctypes.byref(target), 0 if lie == "zero" else 0xFF, size)
