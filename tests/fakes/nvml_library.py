"""A fake driver library with NVML's C interface, built and driven by the tests, or used by the application. Any thread.

    python tests/fakes/nvml_library.py --build DIR [--old]      builds DIR/libnvidia-ml.so.1 and prints the folder
    FAKE_NVML_CARDS=8 FAKE_NVML_DELAY_US=20 LD_LIBRARY_PATH=DIR devexplorer      (nvml_c/control.c lists the variables)

In a test: `NvmlLibrary(build(folder))` loads it into this process, `with library.in_pynvml():` lets the real pynvml run
on it.
"""

from __future__ import annotations

import _ctypes
import argparse
import ctypes
import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).with_name("nvml_c")
NAME = "libnvidia-ml.so.1"
ALL = "*"
EVERY_CARD = -1

# NVML's codes
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
DRIVER_NOT_LOADED = 9
GPU_IS_LOST = 15
UNKNOWN = 999


class CannotBuildError(Exception):
    """Why the library cannot be built."""


def build(folder: Path, *, old_driver: bool = False) -> Path:
    """Compile the library into a folder; returns its path. `old_driver` leaves out what drivers before about 2021 lack.

    Raises `CannotBuildError` without a C compiler, or on a system with another kind of shared library."""
    if not sys.platform.startswith("linux"):
        raise CannotBuildError("the fake NVML library is built for Linux")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise CannotBuildError("there is no C compiler (cc, gcc or clang) to build the fake NVML library with")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / NAME
    flags = [
        "-std=gnu11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Wno-missing-field-initializers",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
    ]
    defines = ["-DOLD_DRIVER"] if old_driver else []
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    command = [compiler, *flags, *defines, f"-Wl,-soname,{NAME}", "-o", str(library), *sources, "-lm", "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotBuildError(f"{compiler} could not build the fake NVML library: {done.stderr.strip()[:2000]}")
    return library


class NvmlLibrary:
    """The library in this process, with controls for its cards. Cards are numbered in the order of addition."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lib = ctypes.CDLL(str(path))
        self.lib.fake_nvml_calls.restype = ctypes.c_long
        self.lib.fake_nvml_freeze.argtypes = [ctypes.c_double]
        self.reset()

    @contextmanager
    def in_pynvml(self) -> Iterator[Any]:
        """Let the real pynvml run on this library, whatever it had loaded before; yields the module."""
        pynvml = importlib.import_module("pynvml")
        before, cache = pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache)
        pynvml.nvmlLib = ctypes.CDLL(str(self.path))  # a separate object: pynvml sets result types on its functions
        pynvml._nvmlGetFunctionPointer_cache.clear()
        try:
            yield pynvml
        finally:
            self.release()
            _ctypes.dlclose(pynvml.nvmlLib._handle)
            pynvml.nvmlLib = before
            pynvml._nvmlGetFunctionPointer_cache.clear()
            pynvml._nvmlGetFunctionPointer_cache.update(cache)

    def close(self) -> None:
        """Unload it, however often it was opened: while it is loaded, loading NVML by name in this process returns
        it."""
        maps = Path("/proc/self/maps")
        while maps.exists() and str(self.path) in maps.read_text(encoding="utf-8", errors="replace"):
            _ctypes.dlclose(self.lib._handle)

    def reset(self, cards: int | Sequence[str] = 2) -> None:
        """Reset everything, with this number of default cards, or with these models (`h200`, `h200mig`, `a100`,
        `rtx4080`, `t4`)."""
        self.lib.fake_nvml_reset(cards if isinstance(cards, int) else 0)
        for model in () if isinstance(cards, int) else cards:
            self.add(model)

    def add(self, model: str | None = None) -> int:
        """Plug a card in; returns its number."""
        number = int(self.lib.fake_nvml_add(model.encode() if model else None))
        assert number >= 0, f"there is no model {model}, or too many cards"
        return number

    def fail(self, function: str, code: int, card: int = EVERY_CARD) -> None:
        """Let a function (`ALL`: each) return a code for a card."""
        self._checked(self.lib.fake_nvml_fail(function.encode(), card, code), function)

    def allow(self, *functions: str, card: int = EVERY_CARD) -> None:
        """Let functions work although all fail."""
        for function in functions:
            self.fail(function, 0, card)

    def heal(self, function: str = ALL, card: int = EVERY_CARD) -> None:
        """Undo one `fail` or `allow`."""
        self.fail(function, -1, card)

    def fail_field(self, field: int, code: int, card: int) -> None:
        """The same for one value of nvmlDeviceGetFieldValues; -1 undoes it."""
        self.lib.fake_nvml_fail_field(field, card, code)

    def delay(self, microseconds: int, function: str = ALL, card: int = EVERY_CARD) -> None:
        """The duration of a call."""
        self._checked(self.lib.fake_nvml_delay(function.encode(), card, microseconds), function)

    def block(self, function: str, card: int = EVERY_CARD) -> None:
        """Let a function hang until `release`, 10 s at most."""
        self._checked(self.lib.fake_nvml_block(function.encode(), card), function)

    def release(self) -> None:
        """Release all hanging calls."""
        self.lib.fake_nvml_release()

    @property
    def waiting(self) -> int:
        """Hanging threads."""
        return int(self.lib.fake_nvml_waiting())

    def lose(self, card: int, lost: bool = True) -> None:
        """Let a card fall off the bus, or come back."""
        self.lib.fake_nvml_lose(card, int(lost))

    def unplug(self, card: int, gone: bool = True) -> None:
        """Take a card out of the list, or put it back."""
        self.lib.fake_nvml_list(card, int(not gone))

    def list_new_cards_only_after_start(self) -> None:
        """A new card appears after NVML is initialised again, as with NVIDIA's library."""
        self.lib.fake_nvml_seen_after_start(1)

    @property
    def functions(self) -> list[str]:
        """Names of all NVML functions in the library."""
        self.lib.fake_nvml_function.restype = ctypes.c_char_p
        names, number = [], 0
        while (name := self.lib.fake_nvml_function(number)) is not None:
            names.append(name.decode())
            number += 1
        return names

    def mig(self, card: int, instances: int | None) -> None:
        """Switch MIG on with new instances, or off (None)."""
        self.lib.fake_nvml_mig(card, int(instances is not None), instances or 0)

    def name(self, card: int, name: bytes) -> None:
        """Any bytes."""
        self.lib.fake_nvml_name(card, name)

    def processes(self, card: int, processes: Sequence[tuple[int, int]], *, graphics: bool = False) -> None:
        """(pid, bytes) of each."""
        count = len(processes)
        pids = (ctypes.c_uint * count)(*(pid for pid, _ in processes))
        sizes = (ctypes.c_uint64 * count)(*(size for _, size in processes))
        self.lib.fake_nvml_processes(card, int(graphics), count, pids, sizes)

    def driver(self, loaded: bool) -> None:
        """Unload the driver, or load it again."""
        self.lib.fake_nvml_driver(int(loaded))

    def freeze(self, seconds: float) -> None:
        """Freeze the time that all values depend on; below 0 it runs."""
        self.lib.fake_nvml_freeze(seconds)

    def calls(self, function: str = ALL, card: int = EVERY_CARD) -> int:
        """Calls so far."""
        return int(self.lib.fake_nvml_calls(function.encode(), card))

    def reset_calls(self) -> None:
        """Count from 0."""
        self.lib.fake_nvml_reset_calls()

    @property
    def initialised(self) -> int:
        """How often NVML was initialised and not yet shut down."""
        return int(self.lib.fake_nvml_initialised())

    @staticmethod
    def _checked(code: int, function: str) -> None:
        assert code == 0, f"the fake NVML library has no function {function}, or not so many cards"


def main() -> int:
    """Build only."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, metavar="DIR", required=True)
    parser.add_argument("--old", action="store_true", help="the library of an old driver")
    arguments = parser.parse_args()
    try:
        print(build(arguments.build.resolve(), old_driver=arguments.old).parent)
    except CannotBuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
