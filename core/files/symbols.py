"""What a pickle of tensors is made of once it is read: symbols of tensors, storages, names. Pure, jobs thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from devexplorer.core.base import BadInput

DEPTH_LIMIT = 200
NODES_LIMIT = 6_000_000
_NESTED = "its containers are nested too deeply, or in themselves"
NO_STORAGE = "it refers to something outside that is no storage"
STORAGES: dict[str, torch.dtype | None] = {
    "UntypedStorage": None,
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64, "IntStorage": torch.int32, "ShortStorage": torch.int16, "CharStorage": torch.int8,
    "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64, "ComplexDoubleStorage": torch.complex128,
    "QInt8Storage": torch.qint8, "QUInt8Storage": torch.quint8, "QInt32Storage": torch.qint32,
    "QUInt4x2Storage": torch.quint4x2, "QUInt2x4Storage": torch.quint2x4,
}  # fmt: skip
"""What torch.save calls the storage of a tensor of that dtype; newer dtypes have untyped ones."""


class Name(NamedTuple):
    """Something that the pickle refers to by module and name."""

    full: str


class Foreign:
    """What calling a name would have made, had it been called."""

    __slots__ = ("full", "is_module")

    def __init__(self, full: str) -> None:
        self.full, self.is_module = full, False


class Raw(NamedTuple):
    """Bytes of the pickle, which stay where they are."""

    start: int
    end: int


class Storage(NamedTuple):
    """A storage in the file."""

    key: str
    dtype: torch.dtype | None
    """None: it is untyped, and every tensor says its own."""
    location: str
    elements: int
    source: Raw | bytes | None = None
    """Where its values are; None: the file has them under its key."""
    view: int = 0
    """Elements of the storage before this part of it."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return (self.dtype or torch.uint8).itemsize


class Stored(NamedTuple):
    """A tensor: a view of a storage."""

    storage: Storage
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool = False
    flags: tuple[str, ...] = ()
    """`conj`, `neg`: what has to be done to the values."""


class Special(NamedTuple):
    """A tensor that is not dense."""

    kind: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    nbytes: int


class Array:
    """An array of NumPy, or the dtype of one, whose state follows after it."""

    __slots__ = ("code", "stored", "swapped")

    def __init__(self, code: str = "") -> None:
        self.code, self.swapped = code, False
        self.stored: Stored | None = None


class Tree(NamedTuple):
    """What a pickle holds."""

    root: Any
    names: tuple[str, ...]
    """All that it asks for."""
    beyond_torch: tuple[str, ...]
    """Of these, what `torch.load(weights_only=True)` does not know."""
    never: tuple[str, ...]
    """What that never reads, even where it is allowed: `collections.defaultdict with something in it`."""
    protocol: int
    storages: Mapping[str, Storage]


@lru_cache(maxsize=64)
def storage_dtype(what: Any) -> torch.dtype | None:
    """The dtype of a class of storages; None: it is untyped."""
    if isinstance(what, Name):
        module, _, last = what.full.rpartition(".")
        if module in ("torch", "torch.cuda", "torch.storage") and last in STORAGES:
            return STORAGES[last]
    raise BadInput(NO_STORAGE)


def stored(arguments: tuple[Any, ...], full: str) -> Stored:
    """What a function that rebuilds tensors makes of its arguments; `full`: which one."""
    storage, offset, shape, stride = arguments[:4]
    if not isinstance(storage, Storage):
        raise BadInput(NO_STORAGE)
    dtype, rest = storage.dtype, arguments[6:]
    if full.endswith("_v3"):
        dtype, rest = torch_dtype(arguments[6]), arguments[7:]
    tensor = checked(storage, dtype, offset, shape, stride)
    flags = rest[0] if rest and isinstance(rest[0], dict) else {}
    return tensor._replace(
        requires_grad=len(arguments) > 4 and bool(arguments[4]),
        flags=tuple(filter(flags.get, ("conj", "neg"))),
    )


def checked(storage: Storage, dtype: torch.dtype | None, offset: Any, shape: Any, stride: Any) -> Stored:
    """A tensor whose numbers are numbers; whether they fit its storage is for whoever has the file."""
    if any(type(number) is not int for number in (offset, *shape, *stride)):
        raise BadInput("the shape of a tensor in it is not a shape")
    return Stored(storage, dtype or torch.uint8, offset + storage.view, tuple(shape), tuple(stride))


def special(kind: str, arguments: tuple[Any, ...]) -> Special:
    """Shape and size as far as the pickle says them: that of a nested tensor is among its values."""
    if kind == "quantised":
        whole = stored((*arguments[:4], False), "")
        return Special(kind, whole.shape, whole.dtype, _nbytes(whole))
    if kind == "sparse":
        parts = [part for part in arguments[1] if isinstance(part, Stored)]
        shape = next(part for part in arguments[1][2:] if isinstance(part, tuple) and not isinstance(part, Stored))
        return Special(kind, tuple(map(int, shape)), parts[-1].dtype, sum(map(_nbytes, parts)))
    if kind == "nested":
        buffer, sizes = arguments[:2]
        return Special(kind, sizes.shape[:1], buffer.dtype, _nbytes(buffer))
    dtype, shape = arguments[1:3]
    if kind.startswith("without"):
        dtype, shape = arguments[:2]
    return Special(kind, tuple(map(int, shape)), torch_dtype(dtype), 0)


def _nbytes(tensor: Stored) -> int:
    return tensor.storage.elements * tensor.storage.itemsize


def torch_dtype(name: Name) -> torch.dtype:
    """The dtype of that name."""
    dtype = vars(torch)[name.full.removeprefix("torch.")]
    assert isinstance(dtype, torch.dtype)
    return dtype


def leaves(root: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every tensor and plain value below the root with the indices that lead to it."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), root)]
    seen = 0
    while waiting:
        place, thing = waiting.pop()
        seen += 1
        if len(place) > DEPTH_LIMIT or seen > NODES_LIMIT:
            raise BadInput(_NESTED)
        if isinstance(thing, Array):
            thing = thing.stored
        items: Iterable[tuple[Any, Any]]
        if isinstance(thing, dict):
            items = reversed(thing.items())
        elif isinstance(thing, (list, tuple)) and not isinstance(thing, (Stored, Storage, Special, Name, Raw)):
            items = reversed(tuple(enumerate(thing)))
        else:
            yield place, thing
            continue
        if len(waiting) + len(thing) > NODES_LIMIT:
            raise BadInput(_NESTED)
        for key, value in items:
            waiting.append(((*place, key), value))
