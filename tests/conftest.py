"""Guards for every test: it must not leave a thread, a child process or an unexpected log line."""

from __future__ import annotations

import builtins
import ctypes
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
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded: every core already has a worker
# Where CI is set, transformers hands its advice on configurations, tiny ones above all, to the root logger.
os.environ.pop("VIRTUAL_ENV", None)  # an environment that is active would be found before those of the tests
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import psutil
import pytest
from fakes.command_line import cpu_build, document, no_virtual_gpus_left, refusal  # noqa: F401 - fixtures for every folder
from fakes.nvml_library import CannotBuildError, NvmlLibrary, build
from fakes.virtual import pytest_runtest_makereport, virtual  # noqa: F401 - for every folder
from fakes.warm import Nursery, cold_processes, warm_popen, warm_processes  # noqa: F401 - fixtures for every folder

with suppress(ImportError):  # not needed where only tests/gpu runs
    import hypothesis

    hypothesis.settings.register_profile("untimed", deadline=None, max_examples=40)  # their time depends on the load
    hypothesis.settings.load_profile("untimed")

M_MMAP_THRESHOLD, OWN_MAPPING_BYTES = -3, 4 << 20
"""glibc's number of the setting, and from which size on what a test allocates goes back to the system when it is
freed. By default the threshold grows to 32 MiB, and freed tensors of a hundred tests stay in a fragmented heap."""
with suppress(AttributeError, TypeError):  # other C libraries
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, OWN_MAPPING_BYTES)

_import = builtins.__import__
"""Python's own, before Qt takes its place."""
LARGE_BYTES = 150_000_000
"""A test process that has grown by more may have garbage to collect."""
SLOW_S = 0.1
"""A full collection that takes longer visits too many permanent objects."""
FIRST = ("vgg", "test_cluster", "test_soak", "test_over_ssh")
"""Parts of names of the tests that run before all others."""
GRACE_SECONDS = 2.0
"""For threads and processes that are already ending."""


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name}: {record.getMessage()}")


class _Garbage:
    """Keeps full collections fast and memory small: freezes modules and caches that tests loaded (torch, transformers),
    between two tests and never while a window exists."""

    def __init__(self) -> None:
        self._began = self._slowest_s = 0.0
        self._held_bytes = sys.maxsize
        """The least memory of this test process since the last collection."""
        gc.callbacks.append(self._timed)

    def _timed(self, phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        elif about["generation"] == 2:
            self._slowest_s = max(self._slowest_s, time.perf_counter() - self._began)

    def between_two_tests(self) -> None:
        held = psutil.Process().memory_info().rss
        self._held_bytes = min(self._held_bytes, held)
        large = held > self._held_bytes + LARGE_BYTES
        if not large and self._slowest_s < SLOW_S:
            return
        if large:
            gc.unfreeze()  # frees a model of the last test before the next one is built
        gc.collect()
        if not _windows():
            gc.freeze()
        self._slowest_s = 0.0
        if large:
            with suppress(AttributeError, TypeError):
                ctypes.CDLL(None).malloc_trim(0)  # the rest of the heap
            self._held_bytes = psutil.Process().memory_info().rss


_garbage = _Garbage()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One test process more than there are cores: a fifth of the time a test waits for another process, a link or a
    timer."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (psutil.cpu_count(logical=False) or psutil.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Every second test process begins with the last folder. In a new checkout each then finds half of the files
    compiled by another one; in the same order all of them compile the same file at the same time."""
    report = yield
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0")[-1] in "13579" and isinstance(collector, pytest.Dir):
        report.result.reverse()
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The same order in each test process. The largest models come first, while test processes are small; then what
    takes longest, so that no test process is left alone with it at the end."""
    items.sort(
        key=lambda item: (next((at for at, name in enumerate(FIRST) if name in item.nodeid), len(FIRST)), item.path)
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests and torch are made without a pass over them every now and then, a third of the time that it
    takes, and no later pass visits them: none of them is ever garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish() -> None:
    """Collect and freeze if it is worth the time."""
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
    """Fail a test that leaves a thread, a process, or a warning in the log."""
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
    """All descendants of this process, without the one that others are forked from. For most tests there are none,
    which is faster to check than all processes."""
    try:
        lists = [file.read_text() for file in Path("/proc/self/task").glob("*/children")]
    except OSError:
        lists = ["?"]  # a thread that has just ended
    if lists and all(pid == str(Nursery.pid) for text in lists for pid in text.split()):
        return []
    return [child for child in psutil.Process().children(recursive=True) if child.pid != Nursery.pid]


def _belongs_to_torch(thread: threading.Thread) -> bool:
    """The autograd engine's threads appear in Python as dummy threads."""
    return isinstance(thread, threading._DummyThread)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True, scope="session")
def imports_are_pythons_own() -> None:
    """PySide6 replaces `import` by one that takes twelve times as long, for `from __feature__ import`. torch imports
    within functions, in some tests 600,000 times; the process of the engine has no Qt."""
    builtins.__import__ = _import


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_is_heard() -> None:
    """In the background of a script SIGINT is inherited as ignored, by pytest and by programs that tests start and
    interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def own_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Benchmarks store runs in the user's data folder, windows copies in the state folder; tests must not write to the
    real ones. Commands go by what the user chose in the window; those of tests must not."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield folder


@pytest.fixture(scope="session")
def nvml_library_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake driver library, built once: its folder, for LD_LIBRARY_PATH."""
    try:
        return build(tmp_path_factory.mktemp("nvml"))
    except CannotBuildError as error:
        pytest.skip(str(error))


@pytest.fixture
def nvml_library(nvml_library_path: Path) -> Iterator[NvmlLibrary]:
    """The real pynvml on two fake cards (`nvml_library.reset(…)` for others); a test that does not shut NVML down
    fails."""
    pytest.importorskip("pynvml")
    library = NvmlLibrary(nvml_library_path)
    with library.in_pynvml():
        yield library
    initialised = library.initialised
    library.close()
    assert initialised == 0, "NVML was started and not shut down"
