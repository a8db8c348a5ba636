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
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from devexplorer.core.base import BadInput, bytes_text
from devexplorer.core.files.entries import RawFile, TensorEntry, checked_key, cut, device_said, shown, wrong_shape
from devexplorer.core.files.kinds import ZIP, is_tar, zip_refusal
from devexplorer.core.files.pickle_tree import read
from devexplorer.core.files.symbols import Foreign, Raw, Special, Storage, Stored, Tree, leaves, storage_dtype

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
_TYPES = {"list", "tuple", "set", "frozenset", "dict", "complex", "bytearray", "bytes", "int", "float", "str", "bool"}
"""What is harmless of `builtins`."""
_OLD = {"builtins.xrange": "range", "builtins.long": "int", "builtins.unicode": "str"}
"""Python 2's names, which protocol 2 keeps."""
_NO_CALLS = {"builtins.range", "builtins.slice", "builtins.object", "types.SimpleNamespace", *_OLD}
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


def calling(names: Sequence[str]) -> list[str]:
    """The names with which a file can call anything, as `getattr`."""
    found = []
    for name in names:
        module, _, last = name.rpartition(".")
        harmless = name in _NO_CALLS or (module == "builtins" and last in _TYPES)
        if module.partition(".")[0] in _CALLING and not harmless:
            found.append(name)
    return found


def allowing(names: Sequence[str], never: Sequence[str], path: str) -> str:
    """How torch.load is told that it may make these; a warning where that would let the file run anything. `never`:
    what it does not read then either."""
    if bad := calling(names):
        some = ", ".join(shown(name) for name in bad[:_FEW])
        return f"no way is safe, as the file asks for {some}, with which it can run any code; do not load it"
    if never:
        return f"weights_only=True reads no {never[0]}; {_trusting(path)}"
    if len(names) > _ALLOWED or not all(part.isidentifier() for name in names for part in name.split(".")):
        listing = f"torch.serialization.get_unsafe_globals_in_checkpoint({path!r})"
        return f"{listing} lists what torch.serialization.safe_globals has to allow"
    some = ", ".join(map(allowed, names))
    return f"with torch.serialization.safe_globals([{some}]): torch.load({path!r})"


def allowed(name: str) -> str:
    """A name as `safe_globals` takes it: NumPy 2 has moved what files of NumPy 1 ask for."""
    if name.startswith("numpy.core."):
        return f"(numpy._core.{name.removeprefix('numpy.core.')}, {name!r})"
    return _OLD.get(name, name.removeprefix("builtins."))


def unpickling(path: str) -> str:
    """How a file that pickle wrote, and not torch.save, is loaded: torch.load refuses it."""
    return f"only where you trust the file, as it runs whatever that says: pickle.load(open({path!r}, 'rb'))"


def left_out(foreign: Mapping[str, str], way: str) -> str:
    """A sentence about values that are Python objects. `foreign`: key -> class; `way`: that of `allowing`."""
    some = [f"{shown(key)} ({shown(full)})" for key, full in list(foreign.items())[:3]]
    more = f" and {len(foreign) - 3:,} more" if len(foreign) > 3 else ""
    what = "is a Python object" if len(foreign) == 1 else "are Python objects"
    return f"{', '.join(some)}{more} {what}: not read. In your own script: {way}."


def foreign_text(tree: Tree, is_module: bool, path: str, pickled: bool) -> str:
    """Why a pickle that asks for these names is not opened, and what would be right; `pickled`: by pickle alone."""
    bad = dangerous(tree.names)
    asked = bad or tree.beyond_torch or tree.names
    some = ", ".join(shown(name) for name in asked[:_FEW]) + (" and others" if len(asked) > _FEW else "")
    if bad:
        what = "a model with something else in it" if is_module else "something else than tensors"
        why = f"it holds {what}, and loading it would run code: it asks for {some}"
        return f"{why}; nothing in it was executed; do not load it anywhere else either"
    what = "it holds a whole model, not its values" if is_module else "it holds Python objects, not tensors"
    way = unpickling(path) if pickled else allowing(tree.beyond_torch, tree.never, path)
    if not (tree.never or pickled):
        way = f"{way}; {_trusting(path)}"
    return (
        f"{what}, and loading it would run code: it asks for {some}; nothing in it was executed; {RIGHT}; in your own"
        f" script, where you have its classes: {way}"
    )


def _trusting(path: str) -> str:
    return f"only where you trust the file: torch.load({path!r}, weights_only=False) runs whatever it says"


# Where the records of a zip archive lie that torch.save wrote: its directory, and the header of each record. Jobs
# thread.
# Stricter than `zipfile`, and with a tenth of its memory for an archive of a million records: what torch.save does
# not write (compression, encryption, a comment, records that overlap) is refused, because readers disagree about it.

_END = struct.Struct("<4s4H2IH")
_LOCATOR = struct.Struct("<4sIQI")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_ENTRY = struct.Struct("<4s4x2H8x2I3H8xI")
_HEADER = struct.Struct("<4s22x2H")
_IN_EXTRA = 0xFFFFFFFF
"""A number that does not fit, and stands among the extra fields instead."""
_LIMIT = 1 << 30
"""Bytes of a directory: that of 900,000 records has 60 MB."""


def records(where: Path) -> dict[str, tuple[int, int]]:
    """Name of a record -> where its bytes begin in the file, and how many there are. `BadInput` says only why not.
    Raises `OSError`, and any exception for a damaged archive."""
    found: dict[str, tuple[int, int]] = {}
    with where.open("rb") as file:
        end = file.seek(0, 2) - _END.size
        file.seek(max(end - _LOCATOR.size, 0))
        tail = file.read()
        signature, _, _, _, count, length, begin, comment = _END.unpack(tail[-_END.size :])
        if signature != b"PK\5\6" or comment:
            raise BadInput("it is cut off, or something was added to its end")
        if tail.startswith(b"PK\6\7"):
            end = _LOCATOR.unpack(tail[: _LOCATOR.size])[2]
            file.seek(end)
            *_, count, length, begin = _END_64.unpack(file.read(_END_64.size))
        if begin + length != end or length > _LIMIT:
            raise BadInput("it is damaged: its directory is not at its end, or longer than that of any checkpoint")
        file.seek(begin)
        directory = file.read(length)
        at = last = 0
        coded = False
        while at < length:
            mark, flags, method, packed, size, named, extra, noted, offset = _ENTRY.unpack_from(directory, at)
            at += _ENTRY.size
            name = directory[at : at + named]
            if _IN_EXTRA in (packed, size, offset):
                size, packed, offset = _large(directory[at + named : at + named + extra], size, packed, offset)
            at += named + extra + noted
            coded = coded or bool(method or flags & 1 or packed != size)
            file.seek(offset)
            header = file.read(_HEADER.size + named)
            own_mark, own, extra = _HEADER.unpack_from(header)
            if mark != b"PK\1\2" or own_mark != ZIP or own != named or not header.endswith(name):
                raise BadInput("it is damaged: its directory names a record that is not there")
            if offset < last:
                raise BadInput("it is damaged: records in it overlap")
            start = offset + _HEADER.size + named + extra
            last = start + packed
            if last > begin:
                raise BadInput("a storage in it reaches beyond its end")
            found[name.decode()] = (start, packed)
    why = zip_refusal(found, next(iter(found), "").partition("/")[0])
    if why is None and coded:
        why = "it is compressed or encrypted, which torch.save does not do"
    if why is not None:
        raise BadInput(why)
    # torch looks names up without regard to case
    if len({name.lower() for name in found}) != count:
        raise BadInput("torch.save did not write it: it has two records of one name, or another number than it says")
    return found


def _large(extra: bytes, *numbers: int) -> list[int]:
    """The numbers, with those that are in the extra fields of an archive above 4 GiB."""
    at = 0
    while (kind := struct.unpack_from("<HH", extra, at))[0] != 1:
        at += 4 + kind[1]
    wide = iter(struct.unpack_from(f"<{kind[1] // 8}Q", extra, at + 4))
    found = []
    for number in numbers:
        found.append(next(wide) if number == _IN_EXTRA else number)
    return found


PICKLE_LIMIT = 1 << 30
"""Bytes of a pickle: that of 900,000 tensors has 95 MB; one with the values in it can be as large as they are."""
FIRST_BYTES = 64 << 10
"""Read of a pickle whose length is not known; eight times as many where they do not do."""
ROOT_KEY = "tensor"
"""What the one tensor of a file is called that is nothing but a tensor."""
PICKLE = "pickle"
"""Title of a file that pickle wrote by itself."""
MAGIC = 0x1950A86A20F9469CFC6C
"""The first pickle of a file of torch.save from before 1.6."""


class TorchFile(RawFile):
    """A file that holds tensors in containers; what beside them would have to be called is left out and named."""

    form = "pt"

    def __init__(self, path: str, where: Path) -> None:
        super().__init__(path, where)
        self._spans: dict[str, tuple[int, int]] = {}
        """Key of a storage -> where its bytes are in the file, and how many."""
        self.title = "torch.save"
        self._held: dict[str, bytes] = {}
        """Values that the pickle has as text."""
        self._stored: dict[str, Stored] = {}
        self._saved = False
        """Whether torch.load(weights_only=True) reads such files."""
        try:
            self._open()
        except (BadInput, OSError):
            self._file.close()
            raise
        # a damaged archive or pickle can fail in any way: BadZipFile, struct.error, KeyError, ValueError, …
        except Exception as error:
            self._file.close()
            raise BadInput(f"'{path}' cannot be opened: it is damaged or cut off ({type(error).__name__})") from None

    def pieces(self, entry: TensorEntry) -> Iterator[Tensor]:
        """The values in order."""
        leaf = self._stored[entry.same_as or entry.key]
        size = leaf.dtype.itemsize
        offset, _ = self._spans.get(leaf.storage.key, (0, 0))
        first = leaf.offset * size
        straight = leaf.stride == _contiguous(leaf.shape)
        if straight and not leaf.flags and leaf.storage.key not in self._held:
            yield from self.run(offset + first, entry.nbytes, leaf.dtype)
            return
        length = _layout(leaf.shape, leaf.stride)[2] * size
        if leaf.storage.key in self._held:
            raw = torch.frombuffer(bytearray(self._held[leaf.storage.key][first : first + length]), dtype=torch.uint8)
        else:
            raw = torch.empty(length, dtype=torch.uint8)
            self.read_into(offset + first, memoryview(raw.numpy()))  # type: ignore[arg-type]  # it is a buffer
        values = (raw != 0 if leaf.dtype == torch.bool else raw.view(leaf.dtype)).as_strided(leaf.shape, leaf.stride)
        for piece in cut(values):
            piece = piece.conj_physical() if "conj" in leaf.flags else piece
            yield -piece if "neg" in leaf.flags else piece

    # --- opening

    def _open(self) -> None:
        head = self._bytes(0, 512)
        if head.startswith(ZIP):
            tree, base = self._of_archive()
            self._saved = tree.protocol == 2
            self._find(tree, base)
        elif is_tar(head):
            self.title = "torch.save, before PyTorch 0.2"
            self._find(self._of_tar(), 0)
        else:
            tree, base = self._of_pickle()
            self._find(tree, base)
        if self.beyond_torch or not self._saved:
            self.form = "pickle"

    def _of_archive(self) -> tuple[Tree, int]:
        """The tree, and where its pickle begins."""
        try:
            found = records(self.where)
        except BadInput as error:
            self.refuse(str(error))
        prefix = next(iter(found), "").partition("/")[0]
        data = f"{prefix}/data/"
        for name, span in found.items():
            if name.startswith(data):
                self._spans[name[len(data) :]] = span
        base, length = found[f"{prefix}/data.pkl"]
        if length > PICKLE_LIMIT:
            self.refuse(f"its tensor index is longer than {bytes_text(PICKLE_LIMIT, 0)}")
        if found.get(f"{prefix}/byteorder", (0, 0))[1] == 3:
            self.refuse("it was saved on a big-endian machine")
        del found
        return self._read(self._bytes(base, length))._replace(storages={}), base

    def _of_pickle(self) -> tuple[Tree, int]:
        """The tree, and where its pickle begins."""
        tree = self._tree(0)
        if tree.root != MAGIC:
            self.title = PICKLE
            return tree, 0
        system = self._tree(at := self._tree(tree.end).end)
        if isinstance(system.root, dict) and system.root.get("little_endian") is False:
            self.refuse("it was saved on a big-endian machine")
        tree = self._tree(base := system.end)
        keys = self._tree(tree.end)
        at = keys.end
        for key in keys.root:
            storage = tree.storages[str(key)]
            nbytes = self._counted(at, storage.elements) * (storage.dtype or torch.uint8).itemsize
            self._spans[storage.key] = (at + 8, nbytes)
            at += 8 + nbytes
            if at > self.size:
                self.refuse("it is cut off: a storage in it reaches beyond its end")
        self._saved = tree.protocol == 2
        self.title = "torch.save, before PyTorch 1.6"
        return tree, base

    def _of_tar(self) -> Tree:
        """Files from before PyTorch 0.2: `storages`, `tensors` with their shapes, and the `pickle` that names these."""
        with tarfile.open(self.where, "r:") as archive:
            members = {member.name: member for member in archive if member.isreg() and not member.issparse()}
        if not {"storages", "tensors", "pickle"} <= members.keys():
            self.refuse("it is a tar archive and no file of torch.save; unpack it with tar -xf")
        known: dict[Any, Any] = {}
        count = self._tree(members["storages"].offset_data)
        at = count.end
        for _ in range(count.root):
            about = self._tree(at)
            key, location, what = about.root
            (elements,) = struct.unpack("<q", self._bytes(about.end, 8))
            storage = Storage(str(key), storage_dtype(what), str(location), elements)
            nbytes = elements * (storage.dtype or torch.uint8).itemsize
            if elements < 0 or about.end + 8 + nbytes > self.size:
                self.refuse("it is cut off: a storage in it reaches beyond its end")
            known[key], self._spans[storage.key] = storage, (about.end + 8, nbytes)
            at = about.end + 8 + nbytes
        for target, root, offset, *_ in self._tree(at).root:
            known[target] = known[root]._replace(view=offset)
        count = self._tree(members["tensors"].offset_data)
        at = count.end
        for _ in range(count.root):
            about = self._tree(at)
            (dimensions,) = struct.unpack("<i", self._bytes(about.end, 4))
            if not 0 <= dimensions <= 64:
                self.refuse(f"a tensor in it has {dimensions} dimensions")
            numbers = struct.unpack(f"<{2 * dimensions + 1}q", self._bytes(about.end + 8, 16 * dimensions + 8))
            storage = known[about.root[1]]
            offset = numbers[-1] + storage.view
            shape, stride = numbers[:dimensions], numbers[dimensions:-1]
            known[about.root[0]] = Stored(storage, storage.dtype or torch.uint8, offset, shape, stride)
            at = about.end + 16 + 16 * dimensions
        return self._tree(members["pickle"].offset_data, known)

    def _tree(self, start: int, known: Mapping[Any, Any] | None = None) -> Tree:
        """The pickle that begins there; its end counts from the beginning of the file."""
        count = FIRST_BYTES
        while True:
            try:
                tree = self._read(self._bytes(start, min(count, self.size - start)), known)
                return tree._replace(end=start + tree.end)
            except BadInput:
                raise
            except Exception:
                if count >= min(self.size - start, PICKLE_LIMIT):
                    raise
            count *= 8

    def _read(self, data: bytes, known: Mapping[Any, Any] | None = None) -> Tree:
        try:
            tree = read(data, 0, known)
        except BadInput as error:
            self.refuse(str(error))
        if dangerous(tree.names):
            self.refuse(foreign_text(tree, False, self.path, self.title == PICKLE))
        return tree

    def _bytes(self, start: int, count: int) -> bytes:
        self._file.seek(start)
        data = self._file.read(max(count, 0))
        while len(data) < count and (more := self._file.read(count - len(data))):  # a read ends at 2 GiB
            data += more
        return data

    def _counted(self, at: int, elements: int) -> int:
        (count,) = struct.unpack("<q", self._bytes(at, 8))
        if count != elements:
            self.refuse("a storage in it has another size than the tensors in it say")
        return elements

    # --- what is in it

    def _find(self, tree: Tree, base: int) -> None:
        """Take every tensor; `base`: where the pickle is in the file."""
        plain: list[str] = []
        foreign: dict[str, str] = {}
        expanded: list[str] = []
        holders: dict[str, str] = {}
        """The first tensor of each storage, and below that of each further part of one."""
        parts: dict[tuple[Any, ...], str] = {}
        for place, leaf in leaves(tree.root):
            key = ROOT_KEY
            if place:
                key = "/".join(part if type(part) is str else _text(part) for part in place)
            if isinstance(leaf, Foreign):
                if leaf.is_module and not place:
                    self.refuse(foreign_text(tree, True, self.path, self.title == PICKLE))
                foreign[key] = leaf.full
                continue
            if not isinstance(leaf, (Stored, Special)):
                plain.append(key)
                continue
            if key in self.entries or key in self.listed:  # {"7": …, 7: …}
                key = f"{key}#{len(self.entries) + len(self.listed)}"
            checked_key(key)
            if isinstance(leaf, Special):
                self.listed[key] = TensorEntry(key, leaf.shape, leaf.dtype, place, kind=leaf.kind, stored=leaf.nbytes)
                continue
            storage = leaf.storage.key
            if storage not in self._spans:
                self._spans[storage] = self._span(leaf.storage, base)
            size = self._spans[storage][1]
            elements = self._check(key, leaf, size)
            same = holders.setdefault(storage, key)
            if same != key and self._stored[same][1:5] != leaf[1:5]:
                same = parts.setdefault((storage, *leaf[1:5]), key)
            tied = same != key and bool(leaf.shape)
            if not tied:
                self._stored[key] = leaf
            if elements * leaf.dtype.itemsize > size:
                expanded.append(key)
            device = device_said(leaf.storage.location)
            self.entries[key] = TensorEntry(
                key, leaf.shape, leaf.dtype, place, device, same if tied else None, leaf.requires_grad
            )
        if foreign and not (self.entries or self.listed):
            modules = any(name.startswith("torch.nn.modules") for name in tree.names)
            self.refuse(foreign_text(tree, modules, self.path, self.title == PICKLE))
        self.beyond_torch = tree.beyond_torch
        way = allowing(tree.beyond_torch, tree.never, self.path)
        if self.title == PICKLE:
            way = unpickling(self.path)
        self._say(plain, foreign, expanded, way)

    def _span(self, storage: Storage, base: int) -> tuple[int, int]:
        if isinstance(storage.source, bytes):
            self._held[storage.key] = storage.source
            return 0, len(storage.source)
        if not isinstance(storage.source, Raw):
            self.refuse("a storage that it needs is not in it")
        start, end = storage.source
        return base + start, end - start

    def _say(self, plain: list[str], foreign: Mapping[str, str], expanded: list[str], way: str) -> None:
        if plain:
            what = (
                f"{len(plain):,} of its values are not tensors" if len(plain) > 1 else "1 of its values is not a tensor"
            )
            self.notes.append(f"{what} ({_some(plain)}) and ignored.")
        if foreign:
            self.notes.append(left_out(foreign, way))
        elif self.beyond_torch and self._saved:
            self.notes.append(f"In your own script: {way}.")
        for kind in sorted({entry.kind for entry in self.listed.values()}):
            keys = [key for key, entry in self.listed.items() if entry.kind == kind]
            are = "is" if len(keys) == 1 else "are"
            self.notes.append(f"{_some(keys)} {are} {kind}: listed, but only dense tensors can be loaded here.")
        if expanded:
            self.notes.append(f"{_some(expanded)} repeats few values: it was saved expanded.")

    def _check(self, key: str, leaf: Stored, size: int) -> int:
        """Its elements."""
        wrong, elements, reach = _layout(leaf.shape, leaf.stride)
        if leaf.offset < 0 or wrong is not None:
            self.refuse(f"'{shown(key)}' has {wrong or 'strides that make no sense'}")
        own = leaf.storage.dtype or torch.uint8
        last = leaf.offset + reach if elements else 0
        if max(leaf.storage.elements * own.itemsize, last * leaf.dtype.itemsize) > size:
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


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of values in the order of their shape."""
    strides = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def _text(part: Any) -> str:
    """A key that is no text as a piece of a name."""
    return str(getattr(part, "full", part))


def _some(keys: list[str]) -> str:
    return ", ".join(map(shown, keys[:3])) + (", …" if len(keys) > 3 else "")
