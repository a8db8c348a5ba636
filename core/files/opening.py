"""Opens a file of tensors by what is in it, whatever its name says; refuses, in one line, anything else. Runs on
the jobs thread."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from devexplorer.core.base import BadInput
from devexplorer.core.files.entries import CHUNK_BYTES, Entry, TensorFile, cut
from devexplorer.core.files.pickle_tree import names_in
from devexplorer.core.files.safe_file import SafeFile
from devexplorer.core.files.torch_file import RIGHT, TorchFile, foreign_text
from devexplorer.core.workspace.tensors import read_array

KINDS = "files of safetensors, of torch.save (.pt) and of numpy (.npy) can be opened"
LOOKED_AT = 4 << 20
"""Bytes of a pickle in which names are looked for, to say why it is refused."""


class ArrayFile(TensorFile):
    """A `.npy` file: one array."""

    form = "npy"

    def __init__(self, path: str, where: Path) -> None:
        super().__init__(path, where)
        self._array = read_array(where, path)
        dtype = torch.from_numpy(np.empty(0, self._array.dtype)).dtype
        stem = Path(path).stem
        self.entries[stem] = Entry(stem, tuple(self._array.shape), dtype, ())

    def pieces(self, entry: Entry) -> Iterator[Tensor]:
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
    try:
        file = _open(path, copy or path)
    except OSError as error:
        raise BadInput(f"'{path}' could not be read: {(error.strerror or str(error)).lower()}") from error
    try:
        yield file
    finally:
        file.close()


def _open(path: str, read: str) -> TensorFile:
    if not read.strip():
        raise BadInput("choose a file")
    if "\0" in read:
        raise BadInput("the name of the file holds a zero byte; choose another one")
    where = Path(read).expanduser()
    try:
        about = where.stat()
    except FileNotFoundError:
        raise BadInput(f"there is no file '{path}'") from None
    if stat.S_ISDIR(about.st_mode):
        raise BadInput(f"'{path}' is a folder; choose a file")
    if not stat.S_ISREG(about.st_mode):
        raise BadInput(f"'{path}' is not a regular file")
    with where.open("rb") as file:
        head = file.read(16)
    if not head:
        raise BadInput(f"'{path}' is empty; {KINDS}")
    if head[:4] == b"PK\x03\x04":
        return TorchFile(path, where)
    if head[:6] == b"\x93NUMPY":
        return ArrayFile(path, where)
    if head[8:9] == b"{" or Path(path).suffix == ".safetensors":
        return SafeFile(path, where)
    raise BadInput(f"'{path}' cannot be opened: {_other(path, where, head)}")


def _other(path: str, where: Path, head: bytes) -> str:
    """Why a file is not opened that is of no known format."""
    if head[0] != 0x80 and head[:1] not in (b"c", b"(", b"]", b"}"):
        return f"its format is not known, or it is damaged; {KINDS}"
    with where.open("rb") as file:
        names = _all_names(file.read(LOOKED_AT))
    if names is None:
        return f"its format is not known, or it is damaged; {KINDS}"
    foreign = [name for name in names if not name.startswith(("torch.", "collections.OrderedDict"))]
    modules = [name for name in names if name.startswith("torch.nn.modules")]
    if foreign or modules:
        return foreign_text([*foreign, *modules], bool(modules), path)
    return (
        "it is a pickle, or a file of torch.save from before PyTorch 1.6, which has no table of contents that could be"
        f" looked into; nothing in it was executed; {RIGHT}, with a newer PyTorch"
    )


def _all_names(data: bytes) -> list[str] | None:
    """Names in the pickles with which a file begins: an old file of torch.save has several. None: it begins with
    none."""
    names: list[str] = []
    whole = False
    for _ in range(8):
        found, length = names_in(data)
        names += found
        whole |= bool(length or found)
        if not length:
            break
        data = data[length:]
    return list(dict.fromkeys(names)) if whole else None
