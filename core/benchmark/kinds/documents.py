"""Benchmark results as the JSON documents of the command line, the clipboard and exports, and back. No torch, no
thread.

`kinds.entries` describes what is in an entry. A sweep and a bandwidth run have an entry for each shape and each copy;
entries that follow each other with the same device, dtype and conditions are read as one run. What a document does not
hold (what was asked for but not measured) is not made up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from devexplorer.core.base import BadInput
from devexplorer.core.base.plain import plain
from devexplorer.core.benchmark.kinds import KINDS, kind_name, kind_of
from devexplorer.core.benchmark.kinds.entries import Document, Entry
from devexplorer.core.records import BenchResult, Conditions


def run_documents(result: BenchResult, conditions: Conditions | None = None) -> list[Document]:
    """The entries of `"runs"` of any result: one for each shape of a sweep and each copy of a bandwidth run, else
    one."""
    shared = {"torch": result.torch_version or None, "conditions": plain(conditions)}
    return [
        {name: value for name, value in plain(entry).items() if value is not msgspec.UNSET} | shared
        for entry in kind_of(result).entries(result, conditions)
    ]


def benchmark_document(results: Sequence[tuple[BenchResult, Conditions | None]]) -> Document:
    """The document without its schema for results of one kind: `benchmark` and `runs`."""
    names = {kind_name(result) for result, _ in results}
    if len(names) != 1:
        raise ValueError(f"a document holds results of one kind, not of {sorted(names) or 'none'}")
    return {
        "benchmark": names.pop(),
        "runs": [run for result, conditions in results for run in run_documents(result, conditions)],
    }


def read_results(
    benchmark: str, runs: Sequence[dict[str, Any]]
) -> Iterator[tuple[int, BenchResult, Conditions | None]]:
    """Every result with its conditions, after the number, from 1 on, of its first entry. Raises `BadInput` that names
    the entry that is wrong."""
    entries: list[tuple[str, Entry]] = []
    for number, content in enumerate(runs, 1):
        name = content.get("benchmark", benchmark)
        if not isinstance(name, str) or name not in KINDS:
            raise BadInput(f"run {number}: there is no benchmark {str(name)[:40]!r}; it is one of {', '.join(KINDS)}")
        try:
            entries.append((name, msgspec.convert(content, type=KINDS[name].entry)))
        except (msgspec.ValidationError, RecursionError) as error:
            raise BadInput(f"run {number}: {error}") from None
    start = 0
    while start < len(entries):
        name, first = entries[start]
        stop = start + 1
        while stop < len(entries) and entries[stop][0] == name and KINDS[name].belong_together(first, entries[stop][1]):
            stop += 1
        yield start + 1, KINDS[name].read([entry for _, entry in entries[start:stop]]), first.conditions
        start = stop
