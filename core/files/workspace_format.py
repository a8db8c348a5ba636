"""What a workspace file says beside its values: records of the manifest, and the limits that its reader keeps. Pure,
jobs thread.

The file is a safetensors file. The manifest is one JSON document in its metadata; the checksum stands before it, so
that the first bytes say what the file is (`kinds`). docs/files.md describes the format.
"""

from __future__ import annotations

import msgspec
import torch

from devexplorer.core.base import BadInput
from devexplorer.core.files.safe_file import DTYPES
from devexplorer.core.models import ModelOrigin
from devexplorer.core.records import Record, SentFrom

FORMAT = 1
UNSET = "00000000"
"""The checksum while the file is written, and in the bytes that it is the checksum of."""
MOST_OBJECTS = 10_000
DEEPEST = 100
"""Modules within modules: PyTorch walks them with recursion."""
LAYOUT_LIMIT = 100_000
"""Characters of the window's layout."""

Option = float | int | bool | None | tuple[float, ...]
"""A setting of an optimizer."""


def dtype_named(name: str) -> torch.dtype:
    """The dtype that a manifest names."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or name.startswith(("q", "bits")):
        raise BadInput(f"there is no dtype '{name[:40]}' here")
    return dtype


def is_raw(dtype: torch.dtype) -> bool:
    """Whether its values are stored as bytes, because safetensors has no name for it."""
    return dtype not in DTYPES.values()


class SavedDevice(Record):
    """A device of the machine on which it was saved."""

    id: str
    name: str
    simulated: bool = False


class SavedTensor(Record, omit_defaults=True):
    """One tensor object; objects, slots, gradients and optimizers name it by its place in the list."""

    device: str
    dtype: str
    shape: tuple[int, ...] = ()
    key: str = ""
    """Its values in the file; two tensors with one key share their memory. Empty: it has none."""
    order: tuple[int, ...] = ()
    """Its dimensions in the order of its memory, where that is not its own: the values are stored that way."""
    parameter: bool = False
    requires_grad: bool = False
    lazy: bool = False
    """Without a shape before the first forward."""
    gradient: int | None = None


class SavedSlot(Record, omit_defaults=True):
    """A parameter or a buffer of a model."""

    path: str
    tensor: int
    buffer: bool = False
    persistent: bool = True


class SavedModule(Record, omit_defaults=True):
    """One module of a model, parents before children."""

    path: str
    training: bool = True
    same_as: str | None = None
    """The first path of the very same module."""


class SavedGroup(Record):
    """One group of an optimizer's parameters."""

    parameters: tuple[int, ...]
    options: dict[str, Option]


class SavedState(Record):
    """What an optimizer keeps for one parameter."""

    parameter: int
    tensors: dict[str, int]
    numbers: dict[str, Option]


class SavedOptimizer(Record):
    """An optimizer with its state."""

    class_name: str
    text: str
    groups: tuple[SavedGroup, ...]
    state: tuple[SavedState, ...] = ()


class SavedModel(Record):
    """A model."""

    origin: ModelOrigin
    modules: tuple[SavedModule, ...]
    slots: tuple[SavedSlot, ...]
    optimizer: SavedOptimizer | None = None


class StoredObject(Record):
    """One object of the workspace: a model, or else a tensor."""

    name: str
    tensor: int | None = None
    model: SavedModel | None = None


class Manifest(Record):
    """The whole of it."""

    format: int
    stamp: str
    """Another one at each saving."""
    devices: tuple[SavedDevice, ...]
    tensors: tuple[SavedTensor, ...]
    objects: tuple[StoredObject, ...]
    layout: str = ""
    """The window's layout, as it wants it back."""
    copy_of: str = ""
    """In a copy of unsaved work: the file that the workspace was saved to otherwise."""
    copy_of_far: SentFrom | None = None
    """The same, where that file is on another machine."""


class _Version(Record):
    format: int


def decoded(text: str) -> Manifest:
    """The manifest; `BadInput` with a clause that says what is wrong."""
    try:
        version = msgspec.json.decode(text, type=_Version).format
        if version > FORMAT:
            raise BadInput(
                f"a newer DevExplorer wrote it, in format {version:,}; update this one, which reads up to {FORMAT}"
            )
        return msgspec.json.decode(text, type=Manifest)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise BadInput("its manifest is damaged") from None
