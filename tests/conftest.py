"""Guards for every test: no thread, no child process and no unexpected log line is left behind."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded: there is a worker for every core already

import psutil
import pytest
from fakes.command_line import document, no_virtual_gpus_left, refusal  # noqa: F401 - fixtures for every folder
from fakes.nvml_library import CannotBuildError, NvmlLibrary, build
from fakes.virtual import virtual  # noqa: F401 - a fixture for every folder

with suppress(ImportError):  # not needed where only tests/gpu runs
    import hypothesis

    hypothesis.settings.register_profile("untimed", deadline=None)  # how long an example takes says how busy we are
    hypothesis.settings.load_profile("untimed")

LARGE_BYTES = 400_000_000
"""A process of tests that has grown by more may have garbage to collect."""
SLOW_S = 0.1
"""A full collection that takes longer looks at too much that stays."""
GRACE_SECONDS = 2.0
"""For threads and processes that are ending already."""


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name}: {record.getMessage()}")


class _Garbage:
    """Keeps full collections quick and memory small: what is imported and cached meanwhile (torch, transformers) is
    moved where no collection looks, between two tests and never while a window lives."""

    def __init__(self) -> None:
        self._began = self._slowest_s = 0.0
        self._held_bytes = 0
        """What this process of tests had in memory when everything was collected."""
        gc.callbacks.append(self._timed)

    def _timed(self, phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        elif about["generation"] == 2:
            self._slowest_s = max(self._slowest_s, time.perf_counter() - self._began)

    def between_two_tests(self) -> None:
        held = psutil.Process().memory_info().rss
        large = held > self._held_bytes + LARGE_BYTES
        if not large and self._slowest_s < SLOW_S:
            return
        if large:
            gc.unfreeze()  # a model of the test before, or the next one comes on top of it
        gc.collect()
        if not _windows():
            gc.freeze()
        self._slowest_s = 0.0
        if large:
            self._held_bytes = psutil.Process().memory_info().rss


_garbage = _Garbage()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """Collect and freeze where that is worth its time."""
    _garbage.between_two_tests()


def _windows() -> list[object]:
    widgets = sys.modules.get("PySide6.QtWidgets")
    return [] if widgets is None else widgets.QApplication.topLevelWidgets()


def _settle(left: object) -> object:
    """Wait until `left()` is empty or the grace period is over; returns what is left."""
    assert callable(left)
    end = time.monotonic() + GRACE_SECONDS
    while (found := left()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail the test that leaves a thread, a process, or a warning in the log."""
    threads = set(threading.enumerate())
    children = {child.pid for child in _children()}
    handler = _Warnings()
    logging.getLogger().addHandler(handler)
    yield
    logging.getLogger().removeHandler(handler)
    assert not handler.lines, f"unexpected log lines: {handler.lines}"
    left = _settle(lambda: [t.name for t in threading.enumerate() if t not in threads and not _belongs_to_torch(t)])
    assert not left, f"threads left behind: {left}"
    left = _settle(lambda: [c for c in _children() if c.pid not in children and c.is_running()])
    assert not left, f"processes left behind: {left}"


def _children() -> list[psutil.Process]:
    """All processes below this one. For most tests there are none, which is quicker to learn than by looking at every
    process."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return []
    return psutil.Process().children(recursive=True)


def _belongs_to_torch(thread: threading.Thread) -> bool:
    """The autograd engine shows its own threads to Python as dummies."""
    return isinstance(thread, threading._DummyThread)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_is_heard() -> None:
    """In the background of a script SIGINT is inherited as ignored, by pytest and by every program that a test starts
    and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def own_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Benchmarks keep their runs in the user's data folder; no test writes into the real one."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def nvml_library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake driver library, built once: its folder is what LD_LIBRARY_PATH takes."""
    try:
        return build(tmp_path_factory.mktemp("nvml"))
    except CannotBuildError as error:
        pytest.skip(str(error))


@pytest.fixture
def nvml_library(nvml_library_path: Path) -> Iterator[NvmlLibrary]:
    """The real pynvml on two fake cards (`nvml_library.reset(…)` for others); a test that leaves NVML started fails."""
    pytest.importorskip("pynvml")
    library = NvmlLibrary(nvml_library_path)
    with library.in_pynvml():
        yield library
    initialised = library.initialised
    library.close()
    assert initialised == 0, "NVML was started and not shut down"
