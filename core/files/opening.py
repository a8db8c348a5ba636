"""Opens a file of tensors by what is in it, whatever its name says; refuses, in one line, anything else. Runs on
the jobs thread."""

from __future__ import annotations

import gc
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from devexplorer.core.base import BadInput
from devexplorer.core.files.entries import CHUNK_BYTES, TensorEntry, TensorFile, cut
from devexplorer.core.files.kinds import (
    LOOKED_AT,
    WEIGHT_MAP,
    ZIP,
    checkpoint_in,
    foreign_format,
    is_safetensors,
    is_tar,
)
from devexplorer.core.files.safe_file import SafeFile
from devexplorer.core.files.sharded import ShardedFile, read_index
from devexplorer.core.files.torch_file import TorchFile
from devexplorer.core.workspace.tensors import read_array

KINDS = "files of safetensors, of torch.save (.pt) and of numpy (.npy) can be opened"


class ArrayFile(TensorFile):
    """A `.npy` file: one array."""

    form, title = "npy", "numpy"

    def __init__(self, path: str, where: Path) -> None:
        super().__init__(path, where)
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
    return ShardedFile(path, where, files, {}, _open_shard)


def _open_shard(path: str, where: Path) -> TensorFile:
    return _open_file(path, where, is_shard=True)


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
        return ShardedFile(path, where, *read_index(path, where), _open_shard)
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
