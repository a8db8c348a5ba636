"""A JSON file as runs: an export of a history, or what `bench --json` printed. Any thread; no torch.

The file is untrusted: its size is limited, every field is checked, nothing in it is run, and one bad run refuses all of
it. What comes in is marked imported; a run that is there already is recognised by what it measured and when.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import BadInput, bytes_text, count_text
from devexplorer.core.benchmark.kinds import figures, kind_name, kind_of, result_type
from devexplorer.core.benchmark.kinds.documents import read_results
from devexplorer.core.history.export import SCHEMA
from devexplorer.core.history.filter import checked_tags, digest
from devexplorer.core.records import BenchResult, Conditions, Spread, StoredRun

if TYPE_CHECKING:
    from devexplorer.core.history.store import Store

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
    for run in read_runs(path):
        if store.find(run.result, run.conditions) is not None:
            known += 1
        else:
            store.add(run.result, run.conditions, run.tags, imported=True)
            added += 1
    there = f" {count_text(known, 'run')} already in the history." if known else ""
    return f"{count_text(added, 'run')} imported from {path.name}.{there}"


def read_runs(path: Path) -> tuple[StoredRun, ...]:
    """The runs of a file, each once, with numbers from 1 on. Raises `BadInput`."""
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
        return parse_runs(data, moment)
    except BadInput as error:
        raise BadInput(f"{path.name}: {error}") from None


def parse_runs(data: bytes, file_unix_s: float) -> tuple[StoredRun, ...]:
    """The runs of a document. `file_unix_s` is their time where they say none. Raises `BadInput`."""
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
    entries = (
        list(_of_documents(document, file_unix_s)) if document.history is None else list(_of_history(document.history))
    )
    if not entries:
        raise BadInput("there is no run in it")
    unique = {digest(entry.result, entry.conditions): entry for entry in entries}
    return tuple(
        StoredRun(id=number, result=entry.result, conditions=entry.conditions, tags=entry.tags, imported=True)
        for number, entry in enumerate(unique.values(), 1)
    )


def _of_history(history: Sequence[dict[str, Any]]) -> Iterable[_Entry]:
    for number, content in enumerate(history, 1):
        try:
            entry = msgspec.convert(content, type=_Entry)
            entry.result = msgspec.convert(entry.result, type=result_type())
            yield _checked(entry)
        except (msgspec.ValidationError, BadInput, RecursionError) as error:
            raise BadInput(f"run {number}: {error}") from None


def _of_documents(document: _Document, file_unix_s: float) -> Iterable[_Entry]:
    for number, result, conditions in read_results(document.benchmark, document.runs):
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
