"""The history for the window: a thread of its own (`history`) reads and writes, so that the window never waits for a
disk. No torch, no Qt.

Every method returns at once. Requests are carried out in the order of the calls; what comes of them is told by
`deliver()`, which the heartbeat calls, so that callbacks run on the main thread.
"""

from __future__ import annotations

import math
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import BadInput, DevExplorerError, bytes_text, count_text, sentence
from devexplorer.core.benchmark.kind import figures, kind_name, kind_of, read_results
from devexplorer.core.feature import Listener, any_result, benchmark_kinds
from devexplorer.core.history.export import SCHEMA, write_csv, write_json
from devexplorer.core.history.filter import Filter, checked_tags, digest
from devexplorer.core.history.report import write_report
from devexplorer.core.history.store import FILE, SideRow, Store
from devexplorer.core.records import BenchResult, Conditions, Spread, StoredRun

if TYPE_CHECKING:
    from devexplorer.core.history.store import Store
    from devexplorer.core.session.session import Session

T = TypeVar("T")
Say = Callable[[str, bool], None]
"""A sentence, and whether it says that something failed."""
_WRITERS = {"json": write_json, "csv": write_csv, "html": write_report}


def _said(say: Say, message: str) -> None:
    say(message, False)


class StoreThread(Listener):
    """Ask, and `deliver` at every beat; `close` at the end. Runs of the session that end are kept.

    `on_change`: lists are out of date. `on_notice`: something happened by itself (the file is locked, was
    damaged). Both are called by `deliver`, as every callback is.
    """

    def __init__(
        self,
        session: Session,
        make: Callable[[], Store] | None = None,
        *,
        on_change: Callable[[], None] = lambda: None,
        on_notice: Say = lambda _words, _failed: None,
    ) -> None:
        """`make` is called on the thread, with the first request."""
        super().__init__(session)
        session.on_run.append(self.add)
        self._make = make or self._open
        self.on_change, self.on_notice = on_change, on_notice
        self.problem: str | None = None
        """What does not work now, in one line, as of the last `deliver`."""
        self._requests: SimpleQueue[tuple[Callable[[Store], None], Say] | None] = SimpleQueue()
        self._replies: deque[Callable[[], None]] = deque()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    def start(self) -> None:
        """The file is opened with the first request."""
        if self._thread.ident is None:
            self._thread.start()

    def deliver(self) -> int:
        """Run the callbacks of finished requests; returns how many there were."""
        count = len(self._replies)
        for _ in range(count):
            self._replies.popleft()()
        return count

    def close(self, deadline_s: float = 2.5) -> bool:
        """Carry out what was asked for and let go of the file; False when that took too long. What is ready then can
        still be delivered."""
        self._requests.put(None)
        if self._thread.ident is not None:
            self._thread.join(deadline_s)
        return not self._thread.is_alive()

    # --- requests ----------------------------------------------------------------------------------------------------

    def add(
        self,
        result: BenchResult,
        conditions: Conditions,
        done: Callable[[StoredRun], None] = lambda run: None,
        *,
        once: bool = False,
    ) -> None:
        """Keep a run; `done` gets it. `once`: it may be there already."""
        self._ask(lambda store: store.add(result, conditions, once=once), done, changes=True)

    def add_row(self, table: str, row: SideRow) -> None:
        """Keep a record of a feature."""
        self._ask(lambda store: store.add_row(table, row), lambda number: None)

    def rows(self, table: str, show: Callable[[Sequence[SideRow]], None], say: Say | None = None) -> None:
        """The latest records of a feature, the oldest of them first."""
        self._ask(lambda store: store.rows(table), show, say)

    def request(
        self,
        kind: str | None,
        text: str,
        limit: int,
        show: Callable[[Sequence[StoredRun], int], None],
        say: Say | None = None,
    ) -> None:
        """List the newest runs that a `Filter` finds; `show` gets them and how many there are altogether, `say` what
        went wrong."""
        wanted = Filter(kind=kind, text=text)

        def work(store: Store) -> tuple[Sequence[StoredRun], int]:
            runs = store.runs(wanted, limit=limit)
            if store.unreadable:
                count = count_text(store.unreadable, "run")
                self._notice(f"{count} of the history cannot be read by this version, and not listed.", True)
            return runs, store.count(wanted)

        self._ask(work, lambda page: show(*page), say)

    def tag(
        self, tags: Sequence[tuple[int, tuple[str, ...]]], say: Say, done: Callable[[], None] = lambda: None
    ) -> None:
        """Give each of these runs its tags instead of those it has; `say` only what went wrong."""
        pairs = tuple(tags)

        def work(store: Store) -> None:
            for number, wanted in pairs:
                store.tag(number, wanted)

        self._ask(work, lambda _: done(), say, changes=True)

    def delete(self, ids: Sequence[int], say: Say) -> None:
        """Forget runs for good."""
        numbers = tuple(ids)
        self._ask(
            lambda store: f"{count_text(store.delete(numbers), 'run')} deleted from the history.",
            partial(_said, say),
            say,
            changes=True,
        )

    def export(self, kind: str, path: Path, ids: Sequence[int], *, names: bool, say: Say) -> None:
        """Write a file, `kind` is `csv`, `json` or `html`. `names`: also of the host and of other people's
        processes."""
        numbers = tuple(ids)

        def work(store: Store) -> str:
            return _WRITERS[kind](path, [store.get(number) for number in numbers], names=names)

        self._ask(work, partial(_said, say), say)

    def import_file(self, path: Path, say: Say) -> None:
        """Take over the runs of a JSON file."""
        self._ask(lambda store: import_file(path, store), partial(_said, say), say, changes=True)

    def _ask(
        self,
        work: Callable[[Store], T],
        show: Callable[[T], None],
        say: Say | None = None,
        *,
        changes: bool = False,
    ) -> None:
        """Have `work` done on the thread; `show` gets what it returns, `say` what goes wrong (None: `on_notice`)."""

        def request(store: Store) -> None:
            try:
                self._reply(partial(show, work(store)))
            finally:
                if changes:
                    self._reply(lambda: self.on_change())

        self.start()
        self._requests.put((request, say or (lambda message, failed: self.on_notice(message, failed))))

    # --- on the thread -----------------------------------------------------------------------------------------------

    def _open(self) -> Store:
        folder = self.session.data_folder
        return Store(None if folder is None else folder / FILE)

    def _reply(self, callback: Callable[[], None]) -> None:
        self._replies.append(callback)

    def _notice(self, message: str, failed: bool) -> None:
        self._reply(lambda: self.on_notice(message, failed))

    def _run(self) -> None:
        store = self._make()
        try:
            while (asked := self._requests.get()) is not None:
                work, say = asked
                self._carry_out(store, partial(work, store), say)
        finally:
            self._carry_out(store, store.close, self.on_notice)

    def _carry_out(self, store: Store, work: Callable[[], None], say: Say) -> None:
        """Do it, and have what it says for people, and what the store has to say, told on the main thread."""
        try:
            work()
        except DevExplorerError as error:
            self._reply(partial(say, sentence(str(error)), True))
        except Exception as error:  # a fault of ours: it is reported as one, and the next run is kept all the same
            threading.excepthook(
                threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
            )
            self._reply(partial(say, f"The history could not do that ({type(error).__name__}: {error}).", True))
        for message in store.notices():
            self._notice(message, True)
        self._reply(partial(self._standing, store.problem))

    def _standing(self, problem: str | None) -> None:
        self.problem = problem


# A JSON file as runs: an export of a history, or what `bench --json` printed. Any thread; no torch.
#
# The file is untrusted: its size is limited, every field is checked, nothing in it is run, and one bad run refuses
# all of it. What comes in is marked imported; a run that is there already is recognised by what it measured and when.

MOST_BYTES = 64 << 20
MOST_RUNS = 10_000
LONGEST_TEXT = 2000
SMALLEST, LARGEST = 1e-30, 1e30
"""Of any number but 0: nothing beyond is a measurement, and products of such numbers are infinite."""
MOST_COUNTED = 1 << 62
"""Bytes of a copy, iterations."""
LAST_MOMENT_UNIX_S = 7.26e9
"""The year 2200."""


class _Document(msgspec.Struct):
    """What has to be at the top of a file."""

    schema: int
    runs: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MOST_RUNS * 20)]
    benchmark: str = ""
    history: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MOST_RUNS)] | None = None


class _Entry(msgspec.Struct):
    """One of our own records."""

    result: Any
    """A `BenchResult`: as it is read, or still plain."""
    conditions: Conditions
    tags: tuple[str, ...] = ()
    imported: bool = False


def import_file(path: Path, store: Store) -> str:
    """Read the file into the history; returns what became of it, in words. Raises `BadInput` with one line for what is
    wrong; then nothing was added."""
    added = known = 0
    left_out: list[str] = []
    for run in read_runs(path, left_out):
        if store.find(run.result, run.conditions) is not None:
            known += 1
        else:
            store.add(run.result, run.conditions, run.tags, imported=True)
            added += 1
    there = f" {count_text(known, 'run')} already in the history." if known else ""
    lacking = ""
    if left_out:
        names = ", ".join(dict.fromkeys(left_out))
        lacking = f" {count_text(len(left_out), 'run')} left out: this DevExplorer has no benchmark {names}."
    return f"{count_text(added, 'run')} imported from {path.name}.{there}{lacking}"


def read_runs(path: Path, left_out: list[str] | None = None) -> tuple[StoredRun, ...]:
    """The runs of a file, each once, with numbers from 1 on; what is of another kind of benchmark than those that are
    here is added to `left_out` by that. Raises `BadInput`."""
    try:
        status = path.stat()
        size, moment = status.st_size, status.st_mtime
        if not stat.S_ISREG(status.st_mode):  # a pipe would never end
            raise BadInput(
                f"{path} cannot be read (it is no file); take what `bench --json` prints or an export of a history"
            )
        if size > MOST_BYTES:
            raise BadInput(
                f"{path} has {bytes_text(size)}, which no export of runs has; at most {bytes_text(MOST_BYTES)} are read"
            )
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror})") from None
    try:
        return parse_runs(data, moment, left_out)
    except BadInput as error:
        raise BadInput(f"{path.name}: {error}") from None


def parse_runs(data: bytes, file_unix_s: float, left_out: list[str] | None = None) -> tuple[StoredRun, ...]:
    """The runs of a document. `file_unix_s` is their time where they say none. Raises `BadInput`."""
    left_out = [] if left_out is None else left_out
    try:
        document = msgspec.json.decode(data, type=_Document)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"this is no list of benchmark runs ({error}); take what `bench --json` prints or an export of a history"
        ) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadInput(
            f"this is no JSON ({error}); take what `bench --json` prints or an export of a history"
        ) from None
    if document.schema != SCHEMA:
        raise BadInput(
            f"it has schema {document.schema}; this version reads schema {SCHEMA}, a newer DevExplorer may read more"
        )
    if document.history is None:
        entries = list(_of_documents(document, file_unix_s, left_out))
    else:
        entries = list(_of_history(document.history, left_out))
    if not entries and left_out:
        raise BadInput(f"there is no benchmark {left_out[0]!r}; there are {', '.join(benchmark_kinds())}")
    if not entries:
        raise BadInput("there is no run in it")
    unique = {digest(entry.result, entry.conditions): entry for entry in entries}
    return tuple(
        StoredRun(id=number, result=entry.result, conditions=entry.conditions, tags=entry.tags, imported=True)
        for number, entry in enumerate(unique.values(), 1)
    )


def _of_history(history: Sequence[dict[str, Any]], left_out: list[str]) -> Iterable[_Entry]:
    for number, content in enumerate(history, 1):
        try:
            entry = msgspec.convert(content, type=_Entry)
            kind = entry.result.get("type") if isinstance(entry.result, dict) else None
            if isinstance(kind, str) and kind not in benchmark_kinds():
                left_out.append(kind[:40])
                continue
            entry.result = msgspec.convert(entry.result, type=any_result())
            yield _checked(entry)
        except (msgspec.ValidationError, BadInput, RecursionError) as error:
            raise BadInput(f"run {number}: {error}") from None


def _of_documents(document: _Document, file_unix_s: float, left_out: list[str]) -> Iterable[_Entry]:
    for number, result, conditions in read_results(document.benchmark, document.runs, left_out):
        if conditions is None:  # older documents, and other people's, do not say when
            conditions = Conditions(
                started_unix_s=max(file_unix_s - result.seconds, 0.0),
                ended_unix_s=file_unix_s,
                device=result.spec.device,
                simulated=result.simulated,
                torch_version=result.torch_version or None,
                threads=result.threads,
            )
        try:
            yield _checked(_Entry(result, conditions))
        except BadInput as error:
            raise BadInput(f"run {number}: {error}") from None


# --- checks -----------------------------------------------------------------------------------------------------------


def _checked(entry: _Entry) -> _Entry:
    """The entry when its figures can be believed to be figures; a virtual GPU is simulated whatever the file says.
    Raises `BadInput`."""
    result: BenchResult = kind_of(entry.result).check_imported(entry.result)
    conditions = entry.conditions
    simulated = result.simulated or conditions.simulated or result.spec.device.startswith("vgpu:")
    result = replace(result, run=0, simulated=simulated)
    conditions = replace(conditions, simulated=simulated)
    if not 0 <= result.seconds < math.inf or not 0 <= result.iterations < MOST_COUNTED:
        raise BadInput(f"it measured {result.seconds} seconds and {result.iterations} iterations, which cannot be")
    if not 0 <= conditions.started_unix_s <= conditions.ended_unix_s <= LAST_MOMENT_UNIX_S:
        raise BadInput("its times are none: it begins at 0 or later, in seconds since 1970, and ends after that")
    for path, value in _values(msgspec.to_builtins((result, conditions))):
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise BadInput(f"a text of {len(value):,} letters {path}; the longest is {LONGEST_TEXT:,}")
        if isinstance(value, int | float) and value and not SMALLEST <= abs(value) <= LARGEST:
            raise BadInput(
                f"a figure of {value:.3g} {path}; nothing that is measured here is below {SMALLEST:g} or above"
                f" {LARGEST:g}"
            )
    measured = figures(result)
    if not measured:
        raise BadInput(f"this {kind_name(result)} run has no figure in it")
    for figure in measured:
        _check_spread(figure.spread, f"{figure.label} {figure.unit}".strip())
    return _Entry(result, conditions, checked_tags(entry.tags), entry.imported)


def _check_spread(known: Spread, what: str) -> None:
    if not 0 < known.p20 <= known.median * (1 + 1e-9) or not known.median <= known.p80 * (1 + 1e-9) < math.inf:
        figures_text = f"median {known.median:g}, p20 {known.p20:g}, p80 {known.p80:g}"
        raise BadInput(f"{what} with {figures_text} cannot be; above 0, and p20 ≤ median ≤ p80, would be right")


def _values(value: object, path: str = "") -> Iterable[tuple[str, str | float]]:
    """Every text and every number in plain values, with its place."""
    if isinstance(value, str | int | float):
        yield (f"in {path.lstrip('.')}" if path else "", value)
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _values(entry, f"{path}.{key}"[:60])
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from _values(entry, path)
