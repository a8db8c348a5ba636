"""Files of allocator snapshots in PyTorch's own format, a pickle of plain values: writing and reading. Jobs thread of
the engine.

A pickle can name any function and have it called. `PlainUnpickler` knows no name at all, so that what it reads is
numbers, texts, tuples, lists and dicts, or nothing. It is Python's own unpickler, not the one in C: that one believes
the memo indices in a file and reserves 16 bytes for each below the largest (measured: one opcode, 128 MiB; it can ask
for 64 GiB). Python's reads about 10 MB a second.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from devexplorer.core.base import BadInput, Cancelled, bytes_text, open_regular, replacing

PROTOCOL = 4
"""What `torch.cuda.memory._dump_snapshot` writes with Python 3.8 to 3.13, and what the viewer at pytorch.org reads."""
MOST_BYTES = 128 << 20
"""Of a file that is read: a quarter of a minute of reading, and some GiB of memory for what is in it."""
NO_SNAPSHOT = "it is no allocator snapshot"

Progress = Callable[[float], None]
"""Gets the share of the file that is read; may raise `Cancelled`."""


def save(snapshot: dict[str, Any], path: str) -> int:
    """Write the snapshot; returns the bytes. All of it or nothing: `BadInput` leaves what was there before as it
    was."""
    data = pickle.dumps(snapshot, protocol=PROTOCOL)
    target = Path(path).expanduser()
    if os.path.isdir(target):
        raise BadInput(f"{path} is a folder; name a file")
    try:
        with replacing(target) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise BadInput(f"the snapshot could not be written to {path}: {error.strerror or error}") from error
    return len(data)


def load(path: str, progress: Progress = lambda share: None, known_as: str = "") -> object:
    """The plain values in a file; `BadInput` in one line when it cannot be read, is too large, or holds anything
    else. `known_as`: the file that people know, where this one is a copy of it."""
    name = known_as or path
    try:
        with open_regular(Path(path).expanduser()) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                raise BadInput(
                    f"{name} has {bytes_text(size)}; snapshots up to {bytes_text(MOST_BYTES, 0)} can be opened"
                )
            data = file.read(MOST_BYTES)
    except OSError as error:
        raise BadInput(f"{name} could not be read: {error.strerror or error}") from error
    return loads(data, name, progress)


def loads(data: bytes, name: str, progress: Progress = lambda share: None) -> object:
    """As `load`, from bytes; `name` is what messages call them."""
    source = _Source(data, progress)
    try:
        return PlainUnpickler(source).load()
    except BadInput as error:
        raise BadInput(f"{name} was not opened: {error}") from None
    except Cancelled:
        raise
    except (
        Exception
    ) as error:  # a damaged pickle can fail in any way: EOFError, KeyError, IndexError, ValueError, MemoryError, …
        raise BadInput(
            f"{name} was not opened: {NO_SNAPSHOT}, or it is damaged or cut off ({type(error).__name__})"
        ) from None


class PlainUnpickler(pickle._Unpickler):
    """Refuses whatever is not a plain value."""

    dispatch: ClassVar[dict[int, Any]] = {  # without the opcode that reserves as many bytes as the file claims
        opcode: do for opcode, do in pickle._Unpickler.dispatch.items() if opcode != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Called for every global in the file, by name or by number of an extension."""
        raise _not_plain(f"asks for {module[:80]}.{name[:80]}")

    def get_extension(self, code: int) -> NoReturn:
        """A global by its number in copyreg's registry, which may be in its cache."""
        raise _not_plain(f"asks for the extension {code}")

    def persistent_load(self, pid: Any) -> NoReturn:
        """A value that lives outside the file."""
        raise _not_plain("refers to values outside the file")


def _not_plain(what: str) -> BadInput:
    return BadInput(f"it {what}; a snapshot of PyTorch has plain values only, so this is none")


class _Source(io.BytesIO):
    """The bytes as a file that reports how far it is read. Lengths that the pickle claims are cut to what is there."""

    def __init__(self, data: bytes, progress: Progress) -> None:
        super().__init__(data)
        self._size, self._progress, self._reported = len(data), progress, 0

    def read(self, count: int | None = -1, /) -> bytes:
        """The next `count` bytes, or as many as there are."""
        data = super().read(count)
        if self.tell() - self._reported >= 1 << 16:
            self._reported = self.tell()
            self._progress(self._reported / self._size)
        return data
