"""Reads files of torch.save of every age, and pickles of tensors: looked through without running anything, values with
plain reads. `torch.load` is never called. Jobs thread.

Since PyTorch 1.6 such a file is a zip archive: `data.pkl` says what there is, every storage is a separate record,
uncompressed. Before, it was a pickle with the storages behind it, and before 0.2 a tar archive; `pickle.dump` puts
storages, and NumPy its arrays, into the pickle. All of it is checked first: that every tensor lies in its storage, and
every storage in the file."""

from __future__ import annotations

import math
import struct
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import torch
from torch import Tensor

from devexplorer.core.base import BadInput
from devexplorer.core.files.entries import (
    RawFile,
    TensorEntry,
    as_dtype,
    checked_key,
    contiguous,
    cut,
    device_said,
    shown,
    some_keys,
    wrong_shape,
)
from devexplorer.core.files.kinds import ZIP, is_tar, zip_refusal
from devexplorer.core.files.pickle_tree import read
from devexplorer.core.files.symbols import Foreign, Raw, Special, Storage, Stored, Tree, checked, leaves, storage_dtype

# What a pickle asks for that is not a tensor: how it is named, and how people open it in their own script. Pure, any
# thread.

RIGHT = "save its state_dict() instead: torch.save(model.state_dict(), …), or safetensors"
_DANGEROUS = {
    "os", "posix", "nt", "sys", "subprocess", "importlib", "runpy", "shutil", "socket", "ctypes", "pty", "io", "_io",
    "webbrowser", "pickle", "marshal", "code", "timeit", "pdb", "bdb", "cProfile", "multiprocessing", "asyncio",
}  # fmt: skip
"""Modules that no model needs in its pickle, and that can do anything."""
_BUILTINS = {"eval", "exec", "compile", "__import__", "open", "input", "breakpoint", "globals", "locals", "vars"}
_CALLING = {"operator", "functools", "types", "inspect", "builtins"}
"""Modules whose functions reach any other function: a file that torch.load lets use one of them can run anything."""
_OLD = {"builtins.xrange": "range", "builtins.long": "int", "builtins.unicode": "str"}
"""Python 2's names, which protocol 2 keeps."""
_TYPES = (
    list, tuple, set, frozenset, dict, complex, bytearray, bytes, int, float, str, bool, range, slice, object,
)  # fmt: skip
_NO_CALLS = {*(f"builtins.{kind.__name__}" for kind in _TYPES), "types.SimpleNamespace", *_OLD}
"""What calls nothing, in modules that do."""
_FEW = 4
"""Names that a line of text can take."""
_ALLOWED = 8
"""And a line of Python."""


def dangerous(names: Sequence[str]) -> list[str]:
    """The names that only code asks for which does harm."""
    found = []
    for name in names:
        module, _, last = name.rpartition(".")
        if module.partition(".")[0] in _DANGEROUS or (module == "builtins" and last in _BUILTINS):
            found.append(name)
    return found


def allowing(tree: Tree, path: str) -> str:
    """How torch.load is told that it may make what is beyond torch; a warning where that would let the file run
    anything."""
    names = tree.beyond_torch
    calling = []
    for name in names:
        if name.partition(".")[0] in _CALLING and name not in _NO_CALLS:
            calling.append(name)
    if calling:
        some = some_keys(calling, _FEW)
        return f"no way is safe, as the file asks for {some}, with which it can run any code; do not load it"
    if tree.never:
        return f"weights_only=True reads no {tree.never[0]}; {_trusting(path)}"
    if len(names) > _ALLOWED or not all(name.replace(".", "_").isidentifier() for name in names):
        listing = f"torch.serialization.get_unsafe_globals_in_checkpoint({path!r})"
        return f"{listing} lists what torch.serialization.safe_globals has to allow"
    return f"with torch.serialization.safe_globals([{', '.join(map(_allowed, names))}]): torch.load({path!r})"


def _allowed(name: str) -> str:
    """A name as `safe_globals` takes it: NumPy 2 has moved what files of NumPy 1 ask for."""
    if name.startswith("numpy.core."):
        return f"(numpy._core.{name.removeprefix('numpy.core.')}, {name!r})"
    return _OLD.get(name, name.removeprefix("builtins."))


def _trusting(path: str) -> str:
    return f"only where you trust the file: torch.load({path!r}, weights_only=False) runs whatever it says"


# Where the records of a zip archive lie that torch.save wrote. Jobs thread. Stricter than `zipfile`: what torch.save
# does not write (compression, encryption, a comment, records that overlap) is refused, because readers disagree about
# it.

_END_BYTES, _HEADER_BYTES = 22, 30


def records(where: Path) -> dict[str, tuple[int, int]]:
    """Name of a record -> where its bytes begin in the file, and how many there are. `BadInput` says only why not.
    Raises `OSError`, and any exception for a damaged archive."""
    found: dict[str, tuple[int, int]] = {}
    names: set[str] = set()
    with where.open("rb") as file, zipfile.ZipFile(file) as archive:
        file.seek(-_END_BYTES, 2)
        if archive.comment or file.read(4) != b"PK\5\6":
            raise BadInput("it is cut off, or something was added to its end")
        coded = False
        last = 0
        for info in archive.infolist():
            if info.header_offset < last or (info.header_offset and not found):
                raise BadInput("it is damaged: records in it overlap, or there is something before them")
            file.seek(info.header_offset)
            header = file.read(_HEADER_BYTES)
            named, extra = struct.unpack("<2H", header[-4:])
            if not header.startswith(ZIP) or file.read(named) != info.orig_filename.encode():
                raise BadInput("it is damaged: its directory names a record that is not there")
            start = file.tell() + extra
            last = start + info.compress_size
            if last > archive.start_dir:
                raise BadInput("a storage in it reaches beyond its end")
            coded = coded or bool(info.compress_type or info.flag_bits & 1 or info.compress_size != info.file_size)
            found[info.orig_filename] = (start, info.compress_size)
            names.add(info.orig_filename.lower())  # torch looks names up without regard to case
    why = zip_refusal(found, next(iter(found), "").partition("/")[0])
    if why is not None:
        raise BadInput(why)
    if coded:
        raise BadInput("it is compressed or encrypted, which torch.save does not do")
    if len(names) != len(archive.infolist()):
        raise BadInput("torch.save did not write it: it has two records of one name")
    return found


ROOT_KEY = "tensor"
"""What the one tensor of a file is called that is nothing but a tensor."""
PICKLE = "pickle"
"""Title of a file that pickle wrote by itself."""
MAGIC = 0x1950A86A20F9469CFC6C
"""The first pickle of a file of torch.save from before 1.6."""
_CUT_OFF = "it is cut off: a storage in it reaches beyond its end"
_BIG_ENDIAN = "it was saved on a big-endian machine"


class TorchFile(RawFile):
    """A file that holds tensors in containers; what beside them would have to be called is left out and named."""

    def __init__(self, path: str, where: Path) -> None:
        super().__init__(path, where)
        self._spans: dict[str, tuple[int, int]] = {}
        """Key of a storage -> where its bytes are in the file, and how many."""
        self.form, self.title = "pt", "torch.save"
        self._held: dict[str, bytes] = {}
        """Values that the pickle has as text."""
        self._stored: dict[str, Stored] = {}
        try:
            with where.open("rb") as file:
                tree = self._opened(file)
            self._find(tree)
        except (BadInput, OSError):
            self.close()
            raise
        # a damaged archive or pickle can fail in any way: BadZipFile, struct.error, KeyError, ValueError, …
        except Exception as error:
            self.close()
            raise BadInput(f"'{path}' cannot be opened: it is damaged or cut off ({type(error).__name__})") from None

    def pieces(self, entry: TensorEntry) -> Iterator[Tensor]:
        """The values in order."""
        leaf = self._stored[entry.same_as or entry.key]
        key, size = leaf.storage.key, leaf.dtype.itemsize
        first = leaf.offset * size
        offset = self._spans[key][0] + first
        if leaf.stride == contiguous(leaf.shape) and not leaf.flags and key not in self._held:
            yield from self.run(offset, entry.nbytes, leaf.dtype)
            return
        length = _layout(leaf.shape, leaf.stride)[2] * size
        if key in self._held:
            raw = torch.frombuffer(bytearray(self._held[key][first : first + length]), dtype=torch.uint8)
        else:
            raw = torch.empty(length, dtype=torch.uint8)
            self.read_into(offset, memoryview(raw.numpy()))  # type: ignore[arg-type]  # it is a buffer
        values = as_dtype(raw, leaf.dtype).as_strided(leaf.shape, leaf.stride)
        for piece in cut(values):
            if "conj" in leaf.flags:
                piece = piece.conj_physical()
            if "neg" in leaf.flags:
                piece = -piece
            yield piece

    # --- opening

    def _opened(self, file: BinaryIO) -> Tree:
        head = file.read(512)
        file.seek(0)
        if is_tar(head):
            self.title = "torch.save, before PyTorch 0.2"
            self.form = "pickle"
            return self._of_tar(file)
        read_tree = self._of_pickle
        if head.startswith(ZIP):
            read_tree = self._of_archive
        tree = read_tree(file)
        if tree.beyond_torch or tree.protocol != 2 or self.title == PICKLE:  # torch.load(weights_only=True) refuses it
            self.form = "pickle"
        return tree

    def _of_archive(self, file: BinaryIO) -> Tree:
        try:
            found = records(self.where)
        except BadInput as error:
            self.refuse(str(error))
        prefix = next(iter(found)).partition("/")[0]
        data = f"{prefix}/data/"
        for name, span in found.items():
            if name.startswith(data):
                self._spans[name.removeprefix(data)] = span
        if found.get(f"{prefix}/byteorder", (0, 0))[1] == len("big"):
            self.refuse(_BIG_ENDIAN)
        begin, length = found[f"{prefix}/data.pkl"]
        file.seek(begin)
        return self._read(file, begin + length)

    def _of_pickle(self, file: BinaryIO) -> Tree:
        tree = self._read(file)
        if tree.root != MAGIC:
            self.title = PICKLE
            return tree
        self.title = "torch.save, before PyTorch 1.6"
        self._read(file)  # its protocol
        system = self._read(file).root
        if isinstance(system, dict) and system.get("little_endian") is False:
            self.refuse(_BIG_ENDIAN)
        tree = self._read(file)
        for key in self._read(file).root:
            storage = tree.storages[str(key)]
            if _number(file) != storage.elements:
                self.refuse("a storage in it has another size than the tensors in it say")
            self._skip(file, storage)
        return tree

    def _of_tar(self, file: BinaryIO) -> Tree:
        """Files from before PyTorch 0.2: `storages`, `tensors` with their shapes, and the `pickle` that names these."""
        with tarfile.open(self.where, "r:") as archive:
            members = {member.name: member for member in archive if member.isreg() and not member.issparse()}
        if not {"storages", "tensors", "pickle"} <= members.keys():
            self.refuse("it is a tar archive and no file of torch.save; unpack it with tar -xf")
        known: dict[Any, Any] = {}
        file.seek(members["storages"].offset_data)
        for _ in range(self._read(file).root):
            key, location, what = self._read(file).root
            known[key] = Storage(str(key), storage_dtype(what), str(location), _number(file))
            self._skip(file, known[key])
        for target, root, offset, *_ in self._read(file).root:
            known[target] = known[root]._replace(view=offset)
        file.seek(members["tensors"].offset_data)
        for _ in range(self._read(file).root):
            key, of, *_ = self._read(file).root
            dimensions, _ = struct.unpack("<ii", file.read(8))
            if not 0 <= dimensions <= 64:
                self.refuse(f"a tensor in it has {dimensions} dimensions")
            *numbers, offset = struct.unpack(f"<{2 * dimensions + 1}q", file.read(16 * dimensions + 8))
            known[key] = checked(known[of], known[of].dtype, offset, numbers[:dimensions], numbers[dimensions:])
        file.seek(members["pickle"].offset_data)
        return self._read(file, known=known)

    def _skip(self, file: BinaryIO, storage: Storage) -> None:
        """Note where the values of a storage are, and go behind them."""
        nbytes = storage.elements * storage.itemsize
        start = file.tell()
        if not 0 <= nbytes <= self.size - start:
            self.refuse(_CUT_OFF)
        self._spans[storage.key] = (start, nbytes)
        file.seek(start + nbytes)

    def _read(self, file: BinaryIO, end: int | None = None, known: Mapping[Any, Any] | None = None) -> Tree:
        """The pickle that begins there."""
        try:
            tree = read(file, end or self.size, known)
        except BadInput as error:
            self.refuse(str(error))
        if dangerous(tree.names):
            self._refuse_foreign(tree, False)
        return tree

    def _refuse_foreign(self, tree: Tree, is_module: bool) -> NoReturn:
        """Refuse a file that holds Python objects alone, or one that does harm, with what would be right."""
        bad = dangerous(tree.names)
        asked = some_keys(bad or tree.beyond_torch or tree.names, _FEW)
        if bad:
            what = "something else than tensors"
            rest = "do not load it anywhere else either"
        else:
            what = "Python objects, not tensors"
            rest = f"{RIGHT}; in your own script, where you have its classes: {self._way(tree)}"
            if not (tree.never or self.title == PICKLE):
                rest += f"; {_trusting(self.path)}"
        if is_module and not bad:
            what = "a whole model, not its values"
        self.refuse(
            f"it holds {what}, and loading it would run code: it asks for {asked}; nothing in it was executed; {rest}"
        )

    def _way(self, tree: Tree) -> str:
        """How people load it in their own script: torch.load refuses what pickle wrote by itself."""
        if self.title == PICKLE:
            loading = f"pickle.load(open({self.path!r}, 'rb'))"
            return f"only where you trust the file, as it runs whatever that says: {loading}"
        return allowing(tree, self.path)

    # --- what is in it

    def _find(self, tree: Tree) -> None:
        """Take every tensor."""
        plain: list[str] = []
        foreign: dict[str, str] = {}
        expanded: list[str] = []
        holders: dict[tuple[Any, ...], str] = {}
        """The first tensor of each part of a storage."""
        for place, leaf in leaves(tree.root):
            key = "/".join(map(_text, place)) or ROOT_KEY
            if isinstance(leaf, Foreign):
                if leaf.is_module and not place:
                    self._refuse_foreign(tree, True)
                foreign[key] = leaf.full
                continue
            if not isinstance(leaf, Stored | Special):
                plain.append(key)
                continue
            if key in self.entries or key in self.listed:  # {"7": …, 7: …}
                key = f"{key}#{len(self.entries) + len(self.listed)}"
            checked_key(key)
            if isinstance(leaf, Special):
                self.listed[key] = TensorEntry(key, leaf.shape, leaf.dtype, place, kind=leaf.kind, stored=leaf.nbytes)
                continue
            size = self._size(leaf.storage)
            elements = self._check(key, leaf, size)
            if elements * leaf.dtype.itemsize > size:
                expanded.append(key)
            same: str | None = holders.setdefault((leaf.storage.key, *leaf[1:5]), key)
            if same == key or not leaf.shape:
                self._stored[key] = leaf
                same = None
            device = device_said(leaf.storage.location)
            self.entries[key] = TensorEntry(key, leaf.shape, leaf.dtype, place, device, same, leaf.requires_grad)
        if foreign and not (self.entries or self.listed):
            self._refuse_foreign(tree, any(name.startswith("torch.nn.modules") for name in tree.names))
        self._say(plain, foreign, expanded, tree)

    def _size(self, storage: Storage) -> int:
        """Bytes of a storage, once it is known where they are."""
        key, source = storage.key, storage.source
        if key not in self._spans:
            if isinstance(source, bytes):
                self._held[key] = source
                self._spans[key] = (0, len(source))
            elif isinstance(source, Raw):
                self._spans[key] = (source.start, source.end - source.start)
            else:
                self.refuse("a storage that it needs is not in it")
        return self._spans[key][1]

    def _say(self, plain: list[str], foreign: Mapping[str, str], expanded: list[str], tree: Tree) -> None:
        if plain:
            are = "1 of its values is not a tensor"
            if len(plain) > 1:
                are = f"{len(plain):,} of its values are not tensors"
            self.notes.append(f"{are} ({some_keys(plain)}) and ignored.")
        if foreign:
            named = [f"{shown(key)} ({shown(full)})" for key, full in list(foreign.items())[:3]]
            if len(foreign) > 3:
                named.append(f"{len(foreign) - 3:,} more")
            what = "is a Python object"
            if len(foreign) > 1:
                what = "are Python objects"
            self.notes.append(f"{', '.join(named)} {what}: not read. In your own script: {self._way(tree)}.")
        elif tree.beyond_torch and self.title != PICKLE and tree.protocol == 2:
            self.notes.append(f"In your own script: {self._way(tree)}.")
        for kind in sorted({entry.kind for entry in self.listed.values()}):
            keys = [key for key, entry in self.listed.items() if entry.kind == kind]
            self.notes.append(f"{some_keys(keys)}: {kind}, listed, but only dense tensors can be loaded here.")
        if expanded:
            self.notes.append(f"{some_keys(expanded)} repeats few values: it was saved expanded.")

    def _check(self, key: str, leaf: Stored, size: int) -> int:
        """Its elements."""
        wrong, elements, reach = _layout(leaf.shape, leaf.stride)
        if leaf.offset < 0:
            wrong = "strides that make no sense"
        if wrong is not None:
            self.refuse(f"'{shown(key)}' has {wrong}")
        last = 0
        if elements:
            last = leaf.offset + reach
        if max(leaf.storage.elements * leaf.storage.itemsize, last * leaf.dtype.itemsize) > size:
            self.refuse(f"'{shown(key)}' reaches beyond the end of the file")
        return elements


@lru_cache(maxsize=1024)  # most tensors of a large file are alike
def _layout(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[str | None, int, int]:
    """What is wrong with it, the elements, and how many of the storage there are from the first one to the last."""
    wrong = wrong_shape(shape)
    if wrong is None and (len(stride) != len(shape) or any(step < 0 for step in stride)):
        wrong = "strides that make no sense"
    if wrong is not None:
        return wrong, 0, 0
    return None, math.prod(shape), 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))


def _number(file: BinaryIO) -> int:
    (number,) = struct.unpack("<q", file.read(8))
    assert isinstance(number, int)
    return number


def _text(part: Any) -> str:
    """A key as a piece of a name."""
    return str(getattr(part, "full", part))
