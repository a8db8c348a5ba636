"""What the kind of a benchmark says of its records; results as the JSON documents of the command line, the clipboard
and exports, and back. Any thread; no torch.

`Entry` describes what is in an entry of a document. A sweep and a bandwidth run have an entry for each shape and each
copy; entries that follow each other and belong together are read as one run. What a document does not hold (what was
asked for but not measured) is not made up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from devexplorer.core.base import BadInput
from devexplorer.core.base.plain import plain
from devexplorer.core.benchmark.kind import BenchmarkKind, Document, Entry, Figure
from devexplorer.core.feature import benchmark_kinds
from devexplorer.core.records import BenchResult, BenchSpec, Conditions


def kind_of(record: BenchSpec | BenchResult) -> BenchmarkKind[Any, Any]:
    """The kind of a specification or a result."""
    return benchmark_kinds()[kind_name(record)]


def kind_name(record: BenchSpec | BenchResult) -> str:
    """`matmul`, `sweep`, …"""
    return str(type(record).__struct_config__.tag)


def devices_of(spec: BenchSpec) -> tuple[str, ...]:
    """Every device that the run keeps busy, each once."""
    return kind_of(spec).devices(spec)


def figures(result: BenchResult) -> tuple[Figure, ...]:
    """Everything that the run measured, in its order; what has a reason instead of a figure is left out."""
    return kind_of(result).figures(result)


def dtype(spec: BenchSpec) -> str | None:
    """The dtype of the run; None where it has none (copies) or keeps that of the model."""
    return kind_of(spec).dtype(spec)


def title(spec: BenchSpec) -> str:
    """What was measured, in a few words: `matmul 4096×4096×4096 bfloat16 burst`."""
    return kind_of(spec).caption(spec)


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
    benchmark: str, runs: Sequence[dict[str, Any]], left_out: list[str]
) -> Iterator[tuple[int, BenchResult, Conditions | None]]:
    """Every result with its conditions, after the number, from 1 on, of its first entry. Entries of kinds that are not
    here are added to `left_out` by their kind. Raises `BadInput` that names the entry that is wrong."""
    kinds = benchmark_kinds()
    entries: list[tuple[int, str, Entry]] = []
    for number, content in enumerate(runs, 1):
        name = content.get("benchmark", benchmark)
        if not isinstance(name, str) or not name:
            raise BadInput(f"run {number}: it does not say which benchmark it is")
        if name not in kinds:
            left_out.append(name[:40])
            continue
        try:
            entries.append((number, name, msgspec.convert(content, type=kinds[name].entry)))
        except (msgspec.ValidationError, RecursionError) as error:
            raise BadInput(f"run {number}: {error}") from None
    start = 0
    while start < len(entries):
        number, name, first = entries[start]
        stop = start + 1
        while stop < len(entries) and entries[stop][1] == name and kinds[name].belong_together(first, entries[stop][2]):
            stop += 1
        yield number, kinds[name].read([entry for _, _, entry in entries[start:stop]]), first.conditions
        start = stop
