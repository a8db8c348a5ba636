"""A checkpoint beside a model: which key is which tensor, and what does not fit. Reads no values. Runs on the jobs
thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from devexplorer.core.files.entries import Entry, TensorFile
from devexplorer.core.files.keys import state_of
from devexplorer.core.files.manifest import SEPARATOR
from devexplorer.core.models import dtype_name, is_uninitialised
from devexplorer.core.records import Comparison, KeyMismatch

NAMED = 1000
"""Keys of each kind that are named."""
COUNTER = "num_batches_tracked"
"""Batch norm's; files from before it was counted do not have it, and PyTorch does without."""


class Container(NamedTuple):
    """A part of the file that could be a state dict."""

    place: tuple[Any, ...]
    """How Python gets at it."""
    prefix: str
    """What its keys begin with in the file."""
    entries: Mapping[str, Entry]

    @property
    def title(self) -> str:
        """What it is called in words; empty: the whole file."""
        return "/".join(map(str, self.place)) or self.prefix.removesuffix(SEPARATOR)


class Match(NamedTuple):
    """The best container for a model."""

    container: Container
    strip: str
    pairs: Sequence[tuple[str, Tensor, Entry]]
    """What would be loaded, in the order of the state dict."""
    missing: Sequence[str]
    unexpected: Sequence[str]
    mismatched: Sequence[KeyMismatch]
    tied: Mapping[str, str]
    """Key that is not in the file -> key of the same tensor that is."""
    casts: Sequence[str]
    suggested: str | None
    part: str | None
    """A part of the model that the file would fit better."""

    @property
    def strict(self) -> bool:
        """Whether everything is there and nothing else."""
        return not (self.missing or self.unexpected or self.mismatched)

    @property
    def nbytes(self) -> int:
        """What would be read."""
        return sum(entry.nbytes for entry in {id(tensor): entry for _, tensor, entry in self.pairs}.values())


def best_match(model: nn.Module, name: str, file: TensorFile, strip: str) -> Match:
    """Find the part of the file that fits a model best, with this prefix removed from its keys."""
    state = state_of(model)
    found = containers(file)
    scored = []
    for order, container in enumerate(found):
        here = hits(container.entries, state, strip)
        best = here if strip else max(here, hits(container.entries, state, suggestion(container.entries, state) or ""))
        scored.append((best, container.title == name, -order, container))
    container = max(scored, key=lambda item: item[:3])[3] if scored else Container((), "", {})
    return _matched(state, container, strip)


def containers(file: TensorFile) -> list[Container]:
    """The whole file, and each of its dicts and lists that holds tensors; of a workspace file each of its objects."""
    found: dict[tuple[tuple[Any, ...], str], dict[str, Entry]] = {}
    document = file.document
    for key, entry in file.entries.items():
        if file.form in ("pt", "pickle"):
            if entry.place:
                found.setdefault((entry.place[:-1], ""), {})[str(entry.place[-1])] = entry
            continue
        found.setdefault(((), ""), {})[key] = entry
        if document is not None and document.single is None and SEPARATOR in key:
            head, _, below = key.partition(SEPARATOR)
            found.setdefault(((), f"{head}{SEPARATOR}"), {})[below] = entry
    return [Container(place, prefix, entries) for (place, prefix), entries in found.items()]


def hits(entries: Mapping[str, Entry], state: Mapping[str, Tensor], strip: str) -> int:
    """Keys that the model has too."""
    return sum(key.removeprefix(strip) in state for key in entries)


def suggestion(entries: Mapping[str, Entry], state: Mapping[str, Tensor]) -> str | None:
    """The prefix that most keys of the file have before a key of the model; None: there is none."""
    prefixes: Counter[str] = Counter()
    for key in entries:
        for index, letter in enumerate(key):
            if letter in "./" and key[index + 1 :] in state:
                prefixes[key[: index + 1]] += 1
    return prefixes.most_common(1)[0][0] if prefixes else None


def _matched(state: Mapping[str, Tensor], container: Container, strip: str) -> Match:
    entries = {key.removeprefix(strip): entry for key, entry in container.entries.items()}
    by_tensor: dict[int, str] = {id(tensor): key for key, tensor in state.items() if key in entries}
    uncounted = not any(key.endswith(COUNTER) for key in entries)
    pairs, missing, mismatched, tied = [], [], [], {}
    casts: list[str] = []
    for key, tensor in state.items():
        entry = entries.get(key)
        if entry is None:
            if id(tensor) in by_tensor:
                tied[key] = by_tensor[id(tensor)]
            elif not (uncounted and key.endswith(COUNTER)):
                missing.append(key)
        elif not is_uninitialised(tensor) and (
            entry.shape != tuple(tensor.shape) or entry.dtype.is_complex > tensor.is_complex()
        ):
            mismatched.append(KeyMismatch(key, tuple(tensor.shape), entry.shape))
        else:
            pairs.append((key, tensor, entry))
            if entry.dtype != tensor.dtype:
                casts.append(f"{key}: {dtype_name(entry.dtype)} → {dtype_name(tensor.dtype)}")
    unexpected = [key for key in entries if key not in state]
    here = hits(container.entries, state, strip)
    other = suggestion(container.entries, state)
    helps = other is not None and other != strip and hits(container.entries, state, other) > here
    part = None if helps or missing == [] else _part(state, entries, here)
    return Match(container, strip, pairs, missing, unexpected, mismatched, tied, casts, other if helps else None, part)


def _part(state: Mapping[str, Tensor], entries: Mapping[str, Entry], here: int) -> str | None:
    """The part of the model whose own keys the file has: the file of a backbone, for a model around it."""
    prefixes: Counter[str] = Counter()
    for key in state:
        for index, letter in enumerate(key):
            if letter == "." and key[index + 1 :] in entries:
                prefixes[key[:index]] += 1
    if not prefixes:
        return None
    path, count = prefixes.most_common(1)[0]
    return path if count > here and count == len(entries) else None


def compared(target: str, path: str, found: Match) -> Comparison:
    """The record of it."""
    return Comparison(
        target=target,
        path=path,
        strip=found.strip,
        matching=len(found.pairs),
        missing=tuple(found.missing[:NAMED]),
        unexpected=tuple(found.unexpected[:NAMED]),
        mismatched=tuple(found.mismatched[:NAMED]),
        casts=tuple(found.casts[:NAMED]),
        missing_count=len(found.missing),
        unexpected_count=len(found.unexpected),
        mismatched_count=len(found.mismatched),
        suggested_strip=found.suggested,
        bytes=found.nbytes,
    )
