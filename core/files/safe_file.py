"""Reads safetensors files: a length, a header in JSON, values. The header is checked to the last byte first. Jobs
thread.

The format is that of github.com/huggingface/safetensors: the header ends where it says, tensors follow each other
without gaps or overlaps and fill the file exactly.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from devexplorer.core.files.entries import RawFile, TensorEntry, checked_key, device_said, shown, wrong_shape
from devexplorer.core.files.manifest import KEY, decoded

DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.float8_e8m0fnu,
    "C64": torch.complex64,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
HEADER_LIMIT = 100_000_000
"""Bytes of a header; the format's own limit."""

_PLACE = b'"data_offsets"'
"""What the header has once for each tensor."""


class _Described(msgspec.Struct, gc=False):
    """A tensor in the header. `__metadata__` is among them, and has none of these."""

    dtype: str = ""
    shape: tuple[int, ...] = ()
    data_offsets: tuple[int, int] = (0, -1)


class _Beside(msgspec.Struct):
    metadata: dict[str, str] = msgspec.field(default_factory=dict, name="__metadata__")


class SafeFile(RawFile):
    """An open safetensors file."""

    form = title = "safetensors"

    def __init__(self, path: str, where: Path) -> None:
        super().__init__(path, where)
        self._offsets: dict[str, int] = {}
        try:
            self._start, header, self.metadata = self._header()
            """What the header says beside the tensors."""
            self._take(header)
            self.document = decoded(self.metadata.get(KEY))
            if KEY in self.metadata and not self.document:
                self.notes.append("Its description of the objects cannot be read.")
            self._tie(self.metadata)
        except BaseException:
            self._file.close()
            raise

    def pieces(self, entry: TensorEntry) -> Iterator[Tensor]:
        """The values in order; each piece is overwritten by the next one."""
        return self.run(self._offsets[entry.same_as or entry.key], entry.nbytes, entry.dtype)

    # --- opening

    def _header(self) -> tuple[int, dict[str, _Described], dict[str, str]]:
        head = self._file.read(8)
        if len(head) < 8:
            self.refuse("it is cut off")
        (length,) = struct.unpack("<Q", head)
        if length > HEADER_LIMIT:
            self.refuse("the length of its header makes no sense")
        if 8 + length > self.size:
            self.refuse("it is cut off inside its header")
        raw = bytearray(length)
        self.read_into(8, memoryview(raw))
        try:
            header = msgspec.json.decode(raw, type=dict[str, _Described])
            metadata = msgspec.json.decode(raw, type=_Beside).metadata
        except msgspec.ValidationError as error:
            self.refuse(f"its header is invalid: {shown(str(error))}")
        except (msgspec.DecodeError, ValueError, RecursionError):
            self.refuse("its header is damaged")
        header.pop("__metadata__", None)
        # of two tensors with one name, readers disagree about which one counts
        if raw.count(_PLACE) != len(header) + ("data_offsets" in header):
            self.refuse("its header names something twice, or a tensor in it has no place")
        return 8 + length, header, metadata

    def _take(self, header: dict[str, _Described]) -> None:
        places = []
        for key, about in header.items():
            shape, (begin, end) = about.shape, about.data_offsets
            dtype = DTYPES.get(about.dtype)
            if dtype is None:
                self.refuse(f"'{shown(key)}' is {shown(about.dtype)}, for which there is no dtype here")
            if (wrong := wrong_shape(shape)) is not None:
                self.refuse(f"'{shown(key)}' has {wrong}")
            if end - begin != math.prod(shape) * dtype.itemsize:
                self.refuse(f"'{shown(key)}' has not as many bytes as its shape and dtype need")
            places.append((begin, end, key))
            self._offsets[key] = self._start + begin
            self.entries[key] = TensorEntry(checked_key(key), shape, dtype, (key,))
        offset = 0
        for begin, end, key in sorted(places):
            if begin != offset:
                self.refuse(f"'{shown(key)}' overlaps another tensor, or there is a gap before it")
            offset = end
        if self._start + offset != self.size:
            self.refuse(
                "it is cut off" if self._start + offset > self.size else "there is something after its last tensor"
            )

    def _tie(self, metadata: Mapping[str, str]) -> None:
        """Names of tensors that are in the file under another name, as `safetensors.torch.save_model` writes them
        down."""
        for key, kept in metadata.items():
            if key not in self.entries and kept in self._offsets:
                self.entries[key] = self.entries[kept]._replace(key=checked_key(key), same_as=kept)
        if self.document is not None:
            for key, device in self.document.devices(self.entries).items():
                self.entries[key] = self.entries[key]._replace(device=device_said(device))
