"""Reads safetensors files: a length, a header in JSON, values. The header is checked to the last byte first. Jobs
thread.

The format is that of github.com/huggingface/safetensors: the header ends where it says, tensors follow each other
without gaps or overlaps and fill the file exactly. Values are read with plain reads and not mapped, so that a file that
shrinks while it is read is an error message instead of a signal that ends the process.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from devexplorer.core.base import BadInput
from devexplorer.core.files.entries import CHUNK_BYTES, Entry, TensorFile, checked_key, device_said, shown, wrong_shape
from devexplorer.core.files.manifest import KEY, decoded

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
HEADER_LIMIT = 100_000_000
"""Bytes of a header; the format's own limit."""


class SafeFile(TensorFile):
    """An open safetensors file."""

    form = "safetensors"

    def __init__(self, path: str, where: Path) -> None:
        super().__init__(path, where)
        self._file = self.where.open("rb", buffering=0)
        self._offsets: dict[str, int] = {}
        try:
            self._start, header = self._header()
            self.metadata = self._metadata(header.pop("__metadata__", {}))
            """What the header says beside the tensors."""
            self._take(header)
            self.document = decoded(self.metadata.get(KEY))
            if KEY in self.metadata and not self.document:
                self.notes.append("Its description of the objects cannot be read.")
            self._tie(self.metadata)
        except BaseException:
            self._file.close()
            raise
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def pieces(self, entry: Entry) -> Iterator[Tensor]:
        """The values in order; each piece is overwritten by the next one."""
        if self._buffer.numel() < min(entry.nbytes, CHUNK_BYTES):
            self._buffer = torch.empty(min(entry.nbytes, CHUNK_BYTES), dtype=torch.uint8)
        begin = self._offsets[entry.same_as or entry.key]
        for offset in range(0, entry.nbytes, CHUNK_BYTES):
            part = self._buffer[: min(CHUNK_BYTES, entry.nbytes - offset)]
            self._read(begin + offset, memoryview(part.numpy()))  # type: ignore[arg-type]  # it is a buffer
            yield part != 0 if entry.dtype == torch.bool else part.view(entry.dtype)

    def _read(self, offset: int, into: memoryview) -> None:
        try:
            self._file.seek(offset)
            while into:
                count = self._file.readinto(into)
                if not count:
                    raise BadInput(f"'{self.path}' ended while it was read: another program has changed it")
                into = into[count:]
        except OSError as error:
            raise BadInput(f"'{self.path}' could not be read: {error.strerror or error}") from error

    # --- opening

    def _header(self) -> tuple[int, dict[str, Any]]:
        head = self._file.read(8)
        if len(head) < 8:
            self.refuse("it is cut off")
        (length,) = struct.unpack("<Q", head)
        if length > HEADER_LIMIT:
            self.refuse("the length of its header makes no sense")
        if 8 + length > self.size:
            self.refuse("it is cut off inside its header")
        raw = bytearray(length)
        self._read(8, memoryview(raw))
        try:
            header = json.loads(raw.decode(), object_pairs_hook=_without_duplicates)
        except BadInput as error:
            self.refuse(str(error))
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict):
            self.refuse("its header is damaged")
        return 8 + length, header

    def _take(self, header: dict[str, Any]) -> None:
        places = []
        for key, about in header.items():
            shape, dtype, begin, end = self._described(key, about)
            if (wrong := wrong_shape(shape)) is not None:
                self.refuse(f"'{shown(key)}' has {wrong}")
            if end - begin != math.prod(shape) * dtype.itemsize:
                self.refuse(f"'{shown(key)}' has not as many bytes as its shape and dtype need")
            places.append((begin, end, key))
            self._offsets[key] = self._start + begin
            self.entries[key] = Entry(checked_key(key), shape, dtype, (key,))
        offset = 0
        for begin, end, key in sorted(places):
            if begin != offset:
                self.refuse(f"'{shown(key)}' overlaps another tensor, or there is a gap before it")
            offset = end
        if self._start + offset != self.size:
            self.refuse(
                "it is cut off" if self._start + offset > self.size else "there is something after its last tensor"
            )

    def _described(self, key: str, about: Any) -> tuple[tuple[int, ...], torch.dtype, int, int]:
        match about:
            case {"dtype": str(name), "shape": [*shape], "data_offsets": [int(begin), int(end)]} if _whole(
                *shape, begin, end
            ):
                if name not in DTYPES:
                    self.refuse(f"'{shown(key)}' is {shown(name)}, for which there is no dtype here")
                return tuple(shape), DTYPES[name], begin, end
            case _:
                return self.refuse(f"its header is invalid for '{shown(key)}'")

    def _tie(self, metadata: Mapping[str, str]) -> None:
        """Names of tensors that are in the file under another name, as `safetensors.torch.save_model` writes them
        down."""
        for key, kept in metadata.items():
            if key not in self.entries and kept in self._offsets:
                self.entries[key] = self.entries[kept]._replace(key=checked_key(key), same_as=kept)
        if self.document is not None:
            for key, device in self.document.devices(self.entries).items():
                self.entries[key] = self.entries[key]._replace(device=device_said(device))

    def _metadata(self, metadata: Any) -> dict[str, str]:
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            self.refuse("its header is damaged")
        return metadata


def _whole(*numbers: Any) -> bool:
    return all(type(number) is int for number in numbers)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    header = dict(pairs)
    if len(header) != len(pairs):
        raise BadInput("its header names something twice")
    return header
