"""Which runs of the history are wanted, as a condition of SQL, and the device that a run is of. Pure functions, any
thread; no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from devexplorer.core.base import BadInput
from devexplorer.core.benchmark.kind import title
from devexplorer.core.records import BenchResult, Conditions, DeviceInfo, StoredRun

MOST_TAGS, LONGEST_TAG = 20, 40


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has to be; None and an empty text: anything."""

    kind: str | None = None
    """`matmul`, `sweep`, `bandwidth`, `scaling`, `model`."""
    text: str = ""
    """Words that all occur in its title, device, versions, host or tags; upper and lower case are the same."""

    @property
    def words(self) -> list[str]:
        """The words of the text, as `search_text` has them."""
        return self.text.casefold().split()


def where(wanted: Filter) -> tuple[str, list[str]]:
    """The condition behind WHERE, and its values."""
    kinds = [] if wanted.kind is None else [wanted.kind]
    terms = ["1", *("kind = ?" for _ in kinds), *("instr(text, ?) > 0" for _ in wanted.words)]
    return " AND ".join(terms), [*kinds, *wanted.words]


def device_of(run: StoredRun) -> str:
    """The device that the run is listed under, by id."""
    return run.conditions.device or run.result.spec.device


def device_here(run: StoredRun, here: Iterable[DeviceInfo]) -> DeviceInfo | None:
    """The device of this machine that the run measured: the one with its UUID, or, where there is none, with its id and
    name."""
    known, name = run.conditions, device_of(run)
    for info in here:
        if info.uuid and known.uuid:
            if info.uuid == known.uuid:
                return info
        elif not run.imported and (info.id, info.name) == (name, known.device_name):
            return info
    return None


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
