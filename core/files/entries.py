"""A file of tensors, whatever its format: what it holds, and how its values get into tensors. Runs on the jobs
thread."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from devexplorer.core.base import BadInput, ProgressMonitor
from devexplorer.core.files.manifest import SEPARATOR, Document, SavedObject

CHUNK_BYTES = 16 << 20
"""Values are read, copied and written in pieces of this size; a multiple of every element size."""
KEY_LIMIT = 1000
"""Characters of a key."""
DIMENSIONS_LIMIT = 64
"""PyTorch's own limit."""

Tick = Callable[[int], None]
"""Told the bytes of each piece before it is copied; raises to stop."""


class TensorEntry(NamedTuple):
    """One tensor of a file, known before any value is read."""

    key: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    place: tuple[Any, ...]
    """How Python gets at it in what the file holds: `["model"]["0.weight"]`; empty: the file is this tensor."""
    device: str | None = None
    """Where it was when it was saved, as far as the file says."""
    same_as: str | None = None
    """The key of the tensor that this one is (a tie): its values are in the file once."""
    requires_grad: bool = False
    kind: str = ""
    """What a tensor is that can be listed and not loaded: `sparse`, `quantised`, …"""
    stored: int = 0
    """Bytes of such a one in the file."""

    @property
    def nbytes(self) -> int:
        """Elements × element size."""
        if self.kind:
            return self.stored
        return math.prod(self.shape) * self.dtype.itemsize


class TensorFile:
    """An open file of tensors. Everything that can be wrong with its structure is found when it is opened, before a
    value is read."""

    form: str
    """`safetensors`, `npy`, `pt`: torch.load(weights_only=True) reads it; `pickle`: it does not; `sharded`."""
    title: str
    """The format in words."""
    document: Document | None = None
    """What a workspace file says about its objects."""

    def __init__(self, path: str, where: Path) -> None:
        """`path`: as people know it."""
        self.path, self.where = path, where
        self.size = self.where.stat().st_size
        self.entries: dict[str, TensorEntry] = {}
        self.listed: dict[str, TensorEntry] = {}
        """Tensors that are not dense, and cannot be loaded here."""
        self.notes: list[str] = []
        """Sentences about what is special in it."""
        self.lacks: list[str] = []
        """What is not there that should be, as pieces of a sentence."""

    def pieces(self, entry: TensorEntry) -> Iterator[Tensor]:
        """The values in order, as flat tensors in the host's memory that are valid until the next one; `BadInput` when
        reading fails."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the file."""

    def refuse(self, why: str) -> NoReturn:
        """Raise `BadInput`: the file cannot be opened."""
        raise BadInput(f"'{self.path}' cannot be opened: {why}")

    @property
    def models(self) -> dict[str, SavedObject]:
        """The models, and parts of models, of a workspace file."""
        objects = () if self.document is None else self.document.objects
        return {item.name: item for item in objects if item.kind != "tensor" and item.name}

    def below(self, name: str) -> dict[str, TensorEntry]:
        """The tensors of an object of a workspace file, by their keys in the object."""
        prefix = f"{name}{SEPARATOR}"
        return {key.removeprefix(prefix): entry for key, entry in self.entries.items() if key.startswith(prefix)}

    def fill(self, entry: TensorEntry, target: Tensor, tick: Tick) -> None:
        """Write the values of an entry into a tensor of the same shape, on whatever device and in whatever dtype it
        is."""
        with torch.no_grad():
            target = target.detach()
            straight = target.is_contiguous()
            flat = target.view(-1) if straight else torch.empty(target.numel(), dtype=entry.dtype)
            start = 0
            for piece in self.pieces(entry):
                tick(piece.nbytes)
                flat[start : start + piece.numel()].copy_(piece)
                start += piece.numel()
            if not straight:
                target.copy_(flat.view(entry.shape))


class RawFile(TensorFile):
    """A file whose values are read with plain reads and not mapped, so that one that shrinks meanwhile is an error
    message instead of a signal that ends the process."""

    def __init__(self, path: str, where: Path) -> None:
        super().__init__(path, where)
        self._file = self.where.open("rb", buffering=0)
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def run(self, offset: int, nbytes: int, dtype: torch.dtype) -> Iterator[Tensor]:
        """Values that follow each other from `offset` on, flat, in pieces; each is overwritten by the next one."""
        if self._buffer.numel() < min(nbytes, CHUNK_BYTES):
            self._buffer = torch.empty(min(nbytes, CHUNK_BYTES), dtype=torch.uint8)
        for start in range(0, nbytes, CHUNK_BYTES):
            part = self._buffer[: min(CHUNK_BYTES, nbytes - start)]
            self.read_into(offset + start, memoryview(part.numpy()))  # type: ignore[arg-type]  # it is a buffer
            yield as_dtype(part, dtype)

    def read_into(self, offset: int, into: memoryview) -> None:
        """All bytes that there is room for; `BadInput` where the file has fewer."""
        try:
            self._file.seek(offset)
            while into:
                count = self._file.readinto(into)
                if not count:
                    raise BadInput(f"'{self.path}' ended while it was read: another program has changed it")
                into = into[count:]
        except OSError as error:
            raise BadInput(f"'{self.path}' could not be read: {error.strerror or error}") from error


def as_dtype(raw: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes as what they are; a bool of a file can be any number."""
    if dtype == torch.bool:
        return raw != 0
    return raw.view(dtype)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of values in the order of their shape."""
    strides = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def cut(values: Tensor) -> Iterator[Tensor]:
    """A tensor of any strides, flat, in pieces of at most `CHUNK_BYTES`; of an expanded one no more is made."""
    nbytes = values.numel() * values.element_size()
    if nbytes <= CHUNK_BYTES or values.dim() == 0:
        yield values.reshape(-1)
        return
    rows = CHUNK_BYTES * values.shape[0] // nbytes
    for part in values.split(max(rows, 1)):
        yield from cut(part if rows else part[0])


class Ticker:
    """Passes progress on, and stops where the user has cancelled; `state` says what is left as it was."""

    def __init__(self, progress: ProgressMonitor, total_bytes: int, doing: str, state: str) -> None:
        self._progress, self._total, self._doing, self._state = progress, max(total_bytes, 1), doing, state
        self._done = 0

    def __call__(self, count: int) -> None:
        """`count` bytes are about to be copied."""
        self._progress.stop_if_cancelled(self._state)
        self._progress.report(min(self._done / self._total, 1.0), self._doing)
        self._done += count


def checked_key(key: str) -> str:
    """The key, if it can be shown and sent; `BadInput` when not."""
    if len(key) > KEY_LIMIT:
        raise BadInput(f"a tensor in it has a name of {len(key):,} characters; {KEY_LIMIT:,} is the most")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise BadInput("the name of a tensor in it cannot be written as text") from None
    return key


@lru_cache(maxsize=64)  # a million tensors were on a few devices
def device_said(text: str) -> str | None:
    """The device that a file names; None for text that names none."""
    return text if re.fullmatch(r"[a-z]{1,20}(:\d{1,4})?", text) else None


def wrong_shape(shape: Sequence[int]) -> str | None:
    """Why PyTorch could not have a tensor of this shape; None when it could."""
    if len(shape) > DIMENSIONS_LIMIT:
        return f"{len(shape)} dimensions"
    if any(length < 0 for length in shape):
        return "a negative size"
    return "more elements than can be counted" if math.prod(max(length, 1) for length in shape) >= 1 << 60 else None


def some_keys(keys: Sequence[str], most: int = 3) -> str:
    """The first of them, for a message."""
    named = list(map(shown, keys[:most]))
    if len(keys) > most:
        named.append("…")
    return ", ".join(named)


def shown(key: str) -> str:
    """A key in a message of one line."""
    line = "".join(letter if letter.isprintable() else "?" for letter in key)
    return line if len(line) <= 80 else f"{line[:77]}…"
