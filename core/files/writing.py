"""Writes files of tensors, whole or not at all: safetensors piece by piece, `.pt` with torch.save. Runs on the jobs
thread."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput, DevExplorerError, bytes_text, first_line, replacing
from devexplorer.core.files.entries import Ticker, cut
from devexplorer.core.files.keys import identity
from devexplorer.core.files.safe_file import DTYPES
from devexplorer.core.models import dtype_name
from devexplorer.core.virtual.device.accounting import KIND

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def checked_path(path: str, form: str) -> Path:
    """Where to write; `BadInput` for what cannot be a new file. A link is followed, so that what it points to is
    replaced."""
    if not path.strip() or "\0" in path:
        raise BadInput(
            "the file needs a name"
            if not path.strip()
            else "the name of the file holds a zero byte; choose another one"
        )
    target = Path(path).expanduser()
    try:
        target = target.resolve() if os.path.islink(target) else target
        if os.path.isdir(target):
            raise BadInput(f"'{path}' is a folder; name a file")
        if os.path.exists(target) and not os.path.isfile(target):
            raise BadInput(f"'{path}' is not a regular file; choose another name")
        try:
            os.stat(target.parent)
        except (FileNotFoundError, NotADirectoryError):
            raise BadInput(f"there is no folder '{target.parent}'; make it first, or choose another one") from None
    except OSError as error:  # too long a name, a folder that may not be entered, a link to itself
        raise BadInput(f"'{path}' cannot be written: {_reason(error)}") from error
    if form != "safetensors" and target.suffix == ".safetensors":
        raise BadInput(
            f"'{path}' would be a file of torch.save with the name of a safetensors file, which torch.load does not"
            " open; take .pt"
        )
    return target


@contextmanager
def written(path: str, target: Path, needed_bytes: int) -> Iterator[Path]:
    """The temporary file that takes the target's place at the end; an error is reported in one line, and the
    old file stays."""
    try:
        free = shutil.disk_usage(target.parent).free
        if free < needed_bytes:
            raise BadInput(f"'{path}' needs {bytes_text(needed_bytes)}, and {bytes_text(free)} are free on that disk")
        with replacing(target) as temporary:
            yield temporary
    except OSError as error:
        raise BadInput(f"'{path}' could not be written: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "no permission to write there; choose another folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "the disk is full; the previous file is unchanged"
    return (error.strerror or str(error)).lower()


def write_safetensors(temporary: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], tick: Ticker) -> int:
    """Write the format that `safe_file` reads; values come from their devices piece by piece. Returns the bytes of the
    file."""
    for key, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise BadInput(f"'{key}' is {dtype_name(tensor.dtype)}, which safetensors cannot hold; save it as .pt")
    ordered = sorted(
        tensors.items(), key=lambda item: (-item[1].element_size(), item[0])
    )  # so that everything is aligned
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for key, tensor in ordered:
        header[key] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for _, tensor in ordered:
            for piece in cut(_plain(tensor).view(-1)):
                tick(piece.nbytes)
                file.write(_bytes(piece))
    return 8 + len(text) + offset


def _plain(tensor: Tensor) -> Tensor:
    """The elements in order, without lazy conjugation."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _bytes(piece: Tensor) -> memoryview:
    return memoryview(piece.to("cpu").view(torch.uint8).numpy())  # type: ignore[arg-type]  # it is a buffer


def write_torch(temporary: Path, thing: Any, tick: Ticker) -> int:
    """torch.save of tensors in containers, or of a module. Returns the bytes of the file."""
    with temporary.open("wb") as file:
        watched = _WatchedFile(file, tick)
        try:
            torch.save(thing, watched)  # type: ignore[arg-type]  # it asks for `write` and `flush` alone
        except Exception as error:
            if watched.stopped is not None:
                raise watched.stopped from None
            what = f"a {type(thing).__name__}" if isinstance(thing, nn.Module) else "it"
            raise BadInput(
                f"torch.save cannot write {what}: {first_line(error)}; save its state dict instead"
            ) from None
    return os.path.getsize(temporary)


class _WatchedFile:
    """A file that reports its progress, and remembers what stopped it: torch's writer passes on no exception of ours as
    it was."""

    def __init__(self, file: IO[bytes], tick: Ticker) -> None:
        self._file, self._tick = file, tick
        self.stopped: OSError | DevExplorerError | None = None

    def write(self, data: Any) -> int:
        """As a file does; once something has gone wrong the rest is thrown away."""
        view = memoryview(data)
        if self.stopped is None:
            try:
                self._tick(view.nbytes)
                self._file.write(view)
            except (OSError, DevExplorerError) as error:
                self.stopped = error
                raise
        return view.nbytes

    def flush(self) -> None:
        """As a file does."""
        if self.stopped is None:
            self._file.flush()


class Hosted:
    """Tensors as torch.save should write them: virtual ones in host memory, views without the storage around them, ties
    kept."""

    def __init__(self) -> None:
        self._seen: dict[tuple[object, ...], Tensor] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        """The tensor itself where it can be written as it is."""
        known = identity(tensor)
        if known not in self._seen:
            made = tensor.detach()
            if made.device.type == KIND:
                made = made.cpu()
            if made.nbytes != made.untyped_storage().nbytes() or not made.is_contiguous():
                made = made.clone(memory_format=torch.contiguous_format)
            self._seen[known] = made.requires_grad_(
                tensor.requires_grad and tensor.is_leaf and not isinstance(tensor, nn.Parameter)
            )
        return self._seen[known]
