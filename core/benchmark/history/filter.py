"""Which runs of the history are wanted, as a condition of SQL and as a question about one run. Pure functions, any
thread; no torch."""

from __future__ import annotations

import hashlib

import msgspec

from devexplorer.core.base.errors import BadInput
from devexplorer.core.benchmark.kinds import dtype, kind_name, title
from devexplorer.core.records.benchmark import BenchResult, Conditions, StoredRun

MOST_TAGS, LONGEST_TAG = 20, 40


class Filter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run has to be; None and an empty text: anything."""

    kind: str | None = None
    """`matmul`, `sweep`, `bandwidth`, `scaling`, `model`."""
    device: str | None = None
    """An id (`cuda:0`), a name (`Tesla T4`) or a UUID, written in full."""
    dtype: str | None = None
    tag: str | None = None
    text: str = ""
    """Words that all occur in its title, device, versions, host or tags; upper and lower case are the same."""
    since_unix_s: float | None = None
    until_unix_s: float | None = None
    """Both about the beginning of the run."""
    simulated: bool | None = None
    imported: bool | None = None


class Choices(msgspec.Struct, frozen=True):
    """What there is to choose from, each sorted."""

    kinds: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    """Names."""
    dtypes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def where(wanted: Filter) -> tuple[str, list[object]]:
    """The condition behind WHERE, and its values."""
    conditions: list[tuple[str, object]] = [
        ("kind = ?", wanted.kind),
        ("dtype = ?", wanted.dtype),
        ("simulated = ?", wanted.simulated),
        ("imported = ?", wanted.imported),
        ("? IN (device, device_name, uuid)", wanted.device),
        ("EXISTS (SELECT 1 FROM json_each(runs.tags) WHERE value = ?)", wanted.tag),
        ("began >= ?", wanted.since_unix_s),
        ("began <= ?", wanted.until_unix_s),
        *(("instr(text, ?) > 0", word) for word in wanted.text.casefold().split()),
    ]
    given = [(term, value) for term, value in conditions if value is not None]
    return " AND ".join(["1", *(term for term, _ in given)]), [value for _, value in given]


def matches(run: StoredRun, wanted: Filter) -> bool:
    """The same condition for one run."""
    known, text = run.conditions, search_text(run)
    return (
        wanted.kind in (None, kind_name(run.result))
        and wanted.dtype in (None, dtype(run.result.spec))
        and wanted.simulated in (None, run.result.simulated)
        and wanted.imported in (None, run.imported)
        and wanted.device in (None, device_of(run), known.device_name, known.uuid)
        and (wanted.tag is None or wanted.tag in run.tags)
        and all(word in text for word in wanted.text.casefold().split())
        and (wanted.since_unix_s is None or known.started_unix_s >= wanted.since_unix_s)
        and (wanted.until_unix_s is None or known.started_unix_s <= wanted.until_unix_s)
    )


def device_of(run: StoredRun) -> str:
    """The device that the run is listed under, by id."""
    return run.conditions.device or run.result.spec.device


def search_text(run: StoredRun) -> str:
    """Everything that words are looked for in."""
    known = run.conditions
    parts = (
        title(run.result.spec), device_of(run), known.device_name, known.uuid, known.host, known.driver_version,
        known.cuda_version,
        known.torch_version or run.result.torch_version, known.git_revision,
        "simulated" if run.result.simulated else "", "imported" if run.imported else "",
        "stopped" if run.result.stopped else "", *run.tags,
    )  # fmt: skip
    return "\n".join(part for part in parts if part).casefold()


def digest(result: BenchResult, conditions: Conditions) -> str:
    """The same for the same run wherever it is stored: of what was measured and when, without the number of the
    session's run and without names that an export may leave out.
    """
    same = msgspec.structs.replace(result, run=0)
    encoded = msgspec.json.encode((same, conditions.started_unix_s, conditions.device_name))
    return hashlib.sha256(encoded).hexdigest()[:32]


def checked_tags(tags: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Tags without surrounding spaces and duplicates, in their order. Raises `BadInput`."""
    result = tuple(dict.fromkeys(" ".join(tag.split()) for tag in tags))
    if "" in result:
        raise BadInput("a tag cannot be empty; enter a word or two")
    if longest := next((tag for tag in result if len(tag) > LONGEST_TAG or not tag.isprintable()), None):
        raise BadInput(f"the tag '{longest[:20]}…' is no tag; write at most {LONGEST_TAG} letters")
    if len(result) > MOST_TAGS:
        raise BadInput(f"{len(result)} tags are too many; a run has at most {MOST_TAGS}")
    return result
