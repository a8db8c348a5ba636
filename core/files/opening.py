"""Opens a file of tensors by what is in it, whatever its name says, and a checkpoint in several files as one; refuses,
in one line, anything else. Files that other machines sent keep the name that people know. Runs on the jobs thread.

An index (`model.safetensors.index.json`) says which shard holds which tensor. It comes from elsewhere: it may name
files of its own folder only.
"""

from __future__ import annotations

import gc
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec
import numpy as np
import torch
from torch import Tensor

from devexplorer.core.base import BadInput, bytes_text, count_text, sentence
from devexplorer.core.files.entries import CHUNK_BYTES, TensorEntry, TensorFile, cut, shown, some_keys
from devexplorer.core.files.kinds import (
    LOOKED_AT,
    MOST_SHARDS,
    WEIGHT_MAP,
    ZIP,
    checkpoint_in,
    foreign_format,
    is_safetensors,
    is_tar,
)
from devexplorer.core.files.manifest import SEPARATOR
from devexplorer.core.files.records import ListFile, Load, LoadCheckpoint, OpenWorkspace, Save, SaveWorkspace
from devexplorer.core.files.safe_file import SafeFile
from devexplorer.core.files.torch_file import TorchFile
from devexplorer.core.records import SentFrom
from devexplorer.core.workspace.tensors import read_array

INDEX_LIMIT = 128 << 20
"""Bytes of an index: that of a model with 100,000 tensors has 10 MB."""


class ShardedFile(TensorFile):
    """The shards of a checkpoint; those that are missing are named in `notes`."""

    def __init__(self, path: str, where: Path, files: list[Path], index: Mapping[str, str]) -> None:
        """`index`: key -> name of its shard; empty: there is none."""
        super().__init__(path, where)
        self.form, self.title = "sharded", "sharded checkpoint"
        self._parts: list[TensorFile] = []
        self._part_of: dict[str, TensorFile] = {}
        self.size = 0
        missing: list[str] = []
        twice: list[str] = []
        try:
            for file in files:
                try:
                    self._parts.append(_open_file(str(file), file, is_shard=True))
                except FileNotFoundError:
                    missing.append(file.name)
                    continue
                twice += self._take(self._parts[-1], index)
        except BaseException:
            self.close()
            raise
        if not self._parts:
            self.refuse(f"all of its shards are missing: {some_keys(missing)}")
        self.title = f"sharded {self._parts[0].title}"
        if missing:
            gone = sum(map(list(index.values()).count, missing))
            shards = "1 shard is" if len(missing) == 1 else f"{len(missing):,} shards are"
            lack = f"{shards} missing: {some_keys(missing)}"
            if gone:
                lack += f"; {count_text(gone, 'tensor')} of it cannot be read"
            self.lacks.append(lack)
        absent = [key for key, name in index.items() if key not in self._part_of and name not in missing]
        if absent:
            number = count_text(len(absent), "tensor")
            self.lacks.append(f"the index names {number} that no shard has: {some_keys(absent)}")
        self.notes[:0] = [f"It is one checkpoint in {count_text(len(files), 'file')}.", *map(sentence, self.lacks)]
        if twice:
            self.notes.append(f"{some_keys(twice)}: in more than one shard; the first one counts.")

    def close(self) -> None:
        """Close every shard."""
        for part in self._parts:
            part.close()

    def pieces(self, entry: TensorEntry) -> Iterator[Tensor]:
        """The values, out of their shard."""
        return self._part_of[entry.key].pieces(entry)

    def _take(self, part: TensorFile, index: Mapping[str, str]) -> list[str]:
        """Take the tensors of a shard that are not in another one as well: the keys of those that are."""
        twice = []
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
            if entry.kind:
                self.listed[key] = entry
            else:
                self.entries[key] = entry
        return twice


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


KINDS = "files of safetensors, of torch.save (.pt) and of numpy (.npy) can be opened"


class ArrayFile(TensorFile):
    """A `.npy` file: one array."""

    def __init__(self, path: str, where: Path) -> None:
        super().__init__(path, where)
        self.form, self.title = "npy", "numpy"
        self._array = read_array(where, path)
        dtype = torch.from_numpy(np.empty(0, self._array.dtype)).dtype
        stem = Path(path).stem
        self.entries[stem] = TensorEntry(stem, tuple(self._array.shape), dtype, ())

    def pieces(self, entry: TensorEntry) -> Iterator[Tensor]:
        """The values in order."""
        flat = self._array.reshape(-1)
        step = max(1, CHUNK_BYTES // max(flat.itemsize, 1))
        for start in range(0, flat.size, step):
            yield from cut(torch.from_numpy(np.array(flat[start : start + step])))

    def close(self) -> None:
        """Release the mapped file."""
        self._array = np.empty(0)


@contextmanager
def opened(path: str, copy: str = "") -> Iterator[TensorFile]:
    """The file, checked; closed again at the end. `BadInput` for whatever cannot be opened. `copy`: what is read, where
    `path` is only what people know it as."""
    collects = gc.isenabled()
    gc.disable()  # it would look through the tensors of a large file again and again: twice the time
    try:
        file = _open(path, copy or path)
    except OSError as error:
        raise BadInput(f"'{path}' could not be read: {(error.strerror or str(error)).lower()}") from error
    finally:
        if collects:
            gc.enable()
    try:
        yield file
    finally:
        file.close()


def tensors(path: str) -> dict[Any, Any]:
    """All tensors of a file, nested as they are in it, on the CPU: as `torch.load` gives them, with nothing run. For
    scripts."""
    found: dict[Any, Any] = {}
    read: dict[str, Tensor] = {}
    with opened(path) as file:
        for entry in file.entries.values():
            kept = entry.same_as or entry.key
            if kept not in read:
                read[kept] = torch.empty(entry.shape, dtype=entry.dtype)
                file.fill(entry, read[kept], lambda _: None)
            *holders, last = entry.place or ("tensor",)
            below = found
            for part in holders:
                below = below.setdefault(part, {})
            below[last] = read[kept]
    return found


def _open(path: str, read: str) -> TensorFile:
    if not read.strip():
        raise BadInput("choose a file")
    if "\0" in read:
        raise BadInput("the name of the file holds a zero byte; choose another one")
    where = Path(os.path.expanduser(read))
    try:
        is_folder = stat.S_ISDIR(where.stat().st_mode)
    except FileNotFoundError:
        raise BadInput(f"there is no file '{path}'") from None
    if not is_folder:
        return _open_file(path, where)
    files = checkpoint_in(where)
    if len(files) == 1:
        return _open_file(path, files[0])
    return ShardedFile(path, where, files, {})


def _open_file(path: str, where: Path, is_shard: bool = False) -> TensorFile:
    """One file, or the shards that an index names; `FileNotFoundError` where there is none."""
    if not stat.S_ISREG(where.stat().st_mode):
        raise BadInput(f"'{path}' is not a regular file")
    with where.open("rb") as file:
        head = file.read(LOOKED_AT)
    if not head:
        raise BadInput(f"'{path}' is empty; {KINDS}")
    suffix = where.suffix.lower()
    if head.startswith(b"\x93NUMPY"):
        return ArrayFile(path, where)
    if head.startswith(b"{") and (WEIGHT_MAP in head or where.name.endswith(".index.json")):
        if is_shard:
            raise BadInput(f"'{path}' is an index and no shard, and another index names it")
        return ShardedFile(path, where, *read_index(path, where))
    if is_safetensors(head, where.stat().st_size):
        return SafeFile(path, where)
    foreign = foreign_format(head, suffix)
    if foreign is not None:
        raise BadInput(f"'{path}' cannot be opened: {foreign}")
    if head.startswith(ZIP) or is_tar(head) or head[0] == 0x80:
        return TorchFile(path, where)
    if head[8:9] == b"{" or suffix == ".safetensors":
        return SafeFile(path, where)
    if head[:1] in (b"c", b"(", b"]", b"}"):  # a pickle of protocol 0 or 1, perhaps
        return TorchFile(path, where)
    raise BadInput(f"'{path}' cannot be opened: its format is not known, or it is damaged; {KINDS}")


Reads = ListFile | Load | LoadCheckpoint | OpenWorkspace
C = TypeVar("C", ListFile, Load, LoadCheckpoint, OpenWorkspace, Save, SaveWorkspace)


def other_machine(command: Reads | Save | SaveWorkspace) -> SentFrom | None:
    """The file that people know, where that is on another machine; `command.path` is a copy here then."""
    if isinstance(command, Save | SaveWorkspace):
        return command.sent_to
    return command.sent_from


def as_known(command: C) -> C:
    """The command as if the file were beside the script: what messages and Python name. Read and write `command.path`
    itself."""
    sent = other_machine(command)
    return command if sent is None else msgspec.structs.replace(command, path=PurePath(sent.path).name)


def origin(command: Reads | Save | SaveWorkspace) -> str:
    """Where the file is that people know."""
    sent = other_machine(command)
    return command.path if sent is None else f"{sent.machine}: {sent.path}"


def with_origin(code: str, command: Reads | Save) -> str:
    """The Python below its imports with a comment that says how the file gets from or to another machine."""
    sent = other_machine(command)
    if sent is None:
        return code
    line = f"From {origin(command)}; put the file beside this script"
    if isinstance(command, Save):
        line = f"Written beside this script; the window brought it to {origin(command)}"
    elif sent.objects:
        line = f"From {sent.machine}: save it there as {PurePath(sent.path).name} and put the file beside this script"
    return code.replace("\n\n", f"\n\n# {' '.join(line.split())}\n", 1)


def goes_to(command: Save | SaveWorkspace) -> str:
    """A sentence for a file that is not yet where people know it; empty: it is."""
    return "" if command.sent_to is None else f" The window copies it to {command.sent_to.machine}."


def plain_prefix(sent: SentFrom | None, file: TensorFile) -> str:
    """What the keys of one model that was sent begin with: where people save that model alone they begin with
    nothing."""
    if sent is not None and sent.objects and file.document is not None and len(file.document.objects) == 1:
        (item,) = file.document.objects
        if item.kind != "tensor":
            return f"{item.name}{SEPARATOR}"
    return ""
