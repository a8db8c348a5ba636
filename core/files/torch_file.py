"""Reads torch.save files (`.pt`): looked through without running anything, then `torch.load(weights_only=True)`,
mapped. Jobs thread.

Such a file is a zip archive: `data.pkl` says what there is, every storage is a separate record, uncompressed. All of
it is checked before torch gets the file: the names in the pickle, that every tensor lies in its storage, and every
storage in the file.
"""

from __future__ import annotations

import math
import struct
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from devexplorer.core.base import BadInput, bytes_text, first_line
from devexplorer.core.files.entries import Entry, TensorFile, checked_key, cut, device_said, shown, wrong_shape
from devexplorer.core.files.pickle_tree import Stored, Tree, leaves, read

PICKLE_LIMIT = 32 << 20
"""Bytes of the pickle: that of 50,000 tensors has 8 MB."""
ROOT_KEY = "tensor"
"""What the one tensor of a file is called that is nothing but a tensor."""
RIGHT = "save its state_dict() instead: torch.save(model.state_dict(), …), or safetensors"


class TorchFile(TensorFile):
    """A file of torch.save that holds tensors in containers, and nothing that would have to be called."""

    form = "pt"

    def __init__(self, path: str, where: Path) -> None:
        super().__init__(path, where)
        if Path(path).suffix == ".safetensors":
            self.refuse("its name says safetensors and it is a file of torch.save; rename it to .pt")
        try:
            with zipfile.ZipFile(self.where) as archive:
                tree = self._tree(archive)
                self._take(tree, archive)
        except (BadInput, OSError):
            raise
        # a damaged archive or pickle can fail in any way: BadZipFile, struct.error, KeyError, ValueError, …
        except Exception as error:
            raise BadInput(f"'{path}' cannot be opened: it is damaged or cut off ({type(error).__name__})") from None
        self._loaded: Any = None

    def close(self) -> None:
        """Release the file, and what is mapped of it."""
        self._loaded = None

    def pieces(self, entry: Entry) -> Iterator[Tensor]:
        """The values in order, out of the mapped file."""
        yield from cut(self._tensor(entry).contiguous().view(-1))

    def _tensor(self, entry: Entry) -> Tensor:
        if self._loaded is None:
            try:
                self._loaded = torch.load(self.where, map_location="cpu", weights_only=True, mmap=True)
            except Exception as error:
                raise BadInput(f"'{self.path}' cannot be loaded: {first_line(error)}") from None
        tensor = self._loaded
        for part in entry.place:
            tensor = tensor[part]
        if not isinstance(tensor, Tensor) or tuple(tensor.shape) != entry.shape or tensor.dtype != entry.dtype:
            raise BadInput(f"'{self.path}' was changed after it was opened")
        return Tensor.detach(tensor)  # without attributes that the file may have given it

    # --- opening

    def _tree(self, archive: zipfile.ZipFile) -> Tree:
        names = [info.filename for info in archive.infolist()]
        self._prefix = names[0].partition("/")[0] if names else ""
        if f"{self._prefix}/constants.pkl" in names:
            self.refuse(
                "it is a TorchScript archive, which is a program; load it with torch.jit.load where you trust it"
            )
        if archive.comment or len({name.lower() for name in names}) != len(names):
            self.refuse("torch.save did not write it: it has a comment, or two records of one name")
        pickled = f"{self._prefix}/data.pkl"
        if pickled not in names:
            self.refuse("it is a zip archive and no file of torch.save")
        info = archive.getinfo(pickled)
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > min(PICKLE_LIMIT, self.size):
            self.refuse(f"its tensor index is compressed or longer than {bytes_text(PICKLE_LIMIT, 0)}")
        try:
            tree = read(archive.read(info))
        except BadInput as error:
            self.refuse(str(error))
        if tree.foreign:
            self.refuse(foreign_text(tree.foreign, tree.is_module, self.path))
        return tree

    def _take(self, tree: Tree, archive: zipfile.ZipFile) -> None:
        sizes: dict[str, int] = {}
        others: list[str] = []
        first: dict[tuple[Any, ...], str] = {}
        for place, leaf in leaves(tree.root):
            key = "/".join(map(str, place)) or ROOT_KEY
            if not isinstance(leaf, Stored):
                others.append(shown(key))
                continue
            if checked_key(key) in self.entries:
                self.refuse(f"two tensors in it would be called '{shown(key)}'")
            stored = leaf.storage.key
            if stored not in sizes:
                sizes[stored] = self._storage_bytes(archive, stored)
            self._check(key, leaf, sizes[stored])
            same = first.setdefault((leaf.storage.key, leaf.offset, leaf.shape, leaf.stride, leaf.dtype), key)
            device = device_said(leaf.storage.location)
            self.entries[key] = Entry(
                key,
                leaf.shape,
                leaf.dtype,
                place,
                device,
                None if same == key or not leaf.shape else same,
                leaf.requires_grad,
            )
        if others:
            some = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
            what = (
                "1 of its values is not a tensor"
                if len(others) == 1
                else f"{len(others):,} of its values are not tensors"
            )
            self.notes.append(f"{what} ({some}) and ignored.")

    def _check(self, key: str, leaf: Stored, size: int) -> None:
        wrong = wrong_shape(leaf.shape)
        if (
            wrong is not None
            or len(leaf.stride) != len(leaf.shape)
            or leaf.offset < 0
            or any(step < 0 for step in leaf.stride)
        ):
            self.refuse(f"'{shown(key)}' has {wrong or 'strides that make no sense'}")
        own = leaf.storage.dtype or torch.uint8
        last = (
            0
            if 0 in leaf.shape
            else leaf.offset + 1 + sum((n - 1) * step for n, step in zip(leaf.shape, leaf.stride, strict=True))
        )
        if max(leaf.storage.elements * own.itemsize, last * leaf.dtype.itemsize) > size:
            self.refuse(f"'{shown(key)}' reaches beyond the end of the file")
        if math.prod(leaf.shape) * leaf.dtype.itemsize > size:
            self.refuse(f"'{shown(key)}' is expanded: it has more elements than values; save its clone() instead")

    def _storage_bytes(self, archive: zipfile.ZipFile, key: str) -> int:
        """Size of a storage that lies in the file, uncompressed."""
        try:
            info = archive.getinfo(f"{self._prefix}/data/{key}")
        except KeyError:
            self.refuse("a storage that it needs is not in it")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.compress_size != info.file_size:
            self.refuse("its values are compressed or encrypted, which torch.save does not do")
        assert archive.fp is not None
        archive.fp.seek(info.header_offset)
        head = archive.fp.read(30)
        if head[:4] != b"PK\x03\x04" or len(head) < 30:
            self.refuse("it is damaged")
        name, extra = struct.unpack("<HH", head[26:30])
        if info.header_offset + 30 + name + extra + info.file_size > self.size:
            self.refuse("a storage in it reaches beyond its end")
        return info.file_size


_DANGEROUS = {
    "builtins",
    "__builtin__",
    "os",
    "posix",
    "nt",
    "sys",
    "subprocess",
    "importlib",
    "runpy",
    "shutil",
    "socket",
    "ctypes",
    "pty",
}
"""Modules that no model needs in its pickle, and that can do anything."""


def foreign_text(names: Sequence[str], is_module: bool, path: str) -> str:
    """Why a pickle that asks for these names is not opened, and what would be right."""
    dangerous = [name for name in names if name.partition(".")[0] in _DANGEROUS]
    some = ", ".join(shown(name) for name in (dangerous or names)[:4]) + (
        " and others" if len(dangerous or names) > 4 else ""
    )
    if dangerous:
        what = "a model with something else in it" if is_module else "something else than tensors"
        why = f"it holds {what}, and loading it would run code: it asks for {some}"
        return f"{why}; nothing in it was executed; do not load it anywhere else either"
    what = "it holds a whole model, not its values" if is_module else "it holds Python objects, not only tensors"
    line = f"torch.load({str(path)!r}, weights_only=False) runs whatever it says"
    return (
        f"{what}, and loading it would run code: it asks for {some}; nothing in it was executed; {RIGHT}; "
        f"only where you trust the file and have its classes, in your own script: {line}"
    )
