"""A checkpoint in several files, as transformers saves large ones, opened as one. Jobs thread.

An index (`model.safetensors.index.json`) says which shard holds which tensor. It comes from elsewhere: it may name
files of its own folder only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from torch import Tensor

from devexplorer.core.base import BadInput, bytes_text, count_text
from devexplorer.core.files.entries import TensorEntry, TensorFile, shown
from devexplorer.core.files.kinds import MOST_SHARDS

INDEX_LIMIT = 128 << 20
"""Bytes of an index: that of a model with 100,000 tensors has 10 MB."""
_NAMED = 3


class ShardedFile(TensorFile):
    """The shards of a checkpoint; those that are missing are named in `notes`."""

    form = "sharded"
    title = "sharded checkpoint"

    def __init__(
        self,
        path: str,
        where: Path,
        files: list[Path],
        index: Mapping[str, str],
        opener: Callable[[str, Path], TensorFile],
    ) -> None:
        """`index`: key -> name of its shard; empty: there is none."""
        super().__init__(path, where)
        self._parts: list[TensorFile] = []
        self._part_of: dict[str, TensorFile] = {}
        self.size = 0
        missing: list[str] = []
        twice: list[str] = []
        try:
            for file in files:
                try:
                    part = opener(str(file), file)
                except FileNotFoundError:
                    missing.append(file.name)
                    continue
                self._parts.append(part)
                self._take(part, index, twice)
        except BaseException:
            self.close()
            raise
        if not self._parts:
            self.refuse(f"all of its shards are missing: {_some(missing)}")
        self.title = f"sharded {self._parts[0].title}"
        self._say(missing, index, twice, len(files))

    def close(self) -> None:
        """Close every shard."""
        for part in self._parts:
            part.close()

    def pieces(self, entry: TensorEntry) -> Iterator[Tensor]:
        """The values, out of their shard."""
        return self._part_of[entry.key].pieces(entry)

    def _take(self, part: TensorFile, index: Mapping[str, str], twice: list[str]) -> None:
        self.size += part.size
        for note in part.notes:
            if note not in self.notes:
                self.notes.append(note)
        for key, entry in {**part.entries, **part.listed}.items():
            if index.get(key, part.where.name) != part.where.name:
                continue
            if key in self._part_of:
                twice.append(key)
                continue
            self._part_of[key] = part
            (self.listed if entry.kind else self.entries)[key] = entry

    def _say(self, missing: list[str], index: Mapping[str, str], twice: list[str], files: int) -> None:
        if missing:
            gone = sum(name in missing for name in index.values())
            lost = f"; {count_text(gone, 'tensor')} of it cannot be read" if gone else ""
            are = "1 shard is" if len(missing) == 1 else f"{len(missing):,} shards are"
            self.lacks.append(f"{are} missing: {_some(missing)}{lost}")
        absent = [key for key, name in index.items() if key not in self._part_of and name not in missing]
        if absent:
            self.lacks.append(f"the index names {count_text(len(absent), 'tensor')} that no shard has: {_some(absent)}")
        self.notes[:0] = [
            f"It is one checkpoint in {count_text(files, 'file')}.",
            *(_sentence(line) for line in self.lacks),
        ]
        if twice:
            self.notes.append(f"{_some(twice)}: in more than one shard; the first one counts.")


def read_index(path: str, where: Path) -> tuple[list[Path], Mapping[str, str]]:
    """The shards that an index names, and which tensor is in which; `BadInput` in one line. Raises `OSError`."""
    size = where.stat().st_size
    if size > INDEX_LIMIT:
        raise BadInput(f"'{path}' is larger than {bytes_text(INDEX_LIMIT, 0)}, which no index is")
    try:
        content = json.loads(where.read_bytes())
    except (ValueError, RecursionError):
        raise BadInput(f"the index of '{path}' is no JSON: it is damaged or cut off") from None
    named = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(named, dict) or not named or not all(isinstance(name, str) for name in named.values()):
        raise BadInput(f"'{path}' is no index of a checkpoint: it names no files of weights")
    names = sorted(set(named.values()))
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
            raise BadInput(f"'{path}' names '{shown(name)}', which is no file in its own folder; nothing was read")
    if len(names) > MOST_SHARDS:
        raise BadInput(f"'{path}' names {len(names):,} files; {MOST_SHARDS} are the most")
    return [where.parent / name for name in names], named


def _sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _some(names: list[str]) -> str:
    return ", ".join(map(shown, names[:_NAMED])) + (", …" if len(names) > _NAMED else "")
