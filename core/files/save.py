"""Carries out `Save`: gathers, writes files of tensors whole or not at all (safetensors piece by piece, `.pt` with
torch.save), and says what the file is good for. Runs on the jobs thread."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from devexplorer.core.base import (
    BadInput,
    DevExplorerError,
    Findings,
    ProgressMonitor,
    bytes_text,
    count_text,
    first_line,
    list_text,
    object_name,
    objects_text,
    replacing,
)
from devexplorer.core.files import code
from devexplorer.core.files.entries import Ticker, cut
from devexplorer.core.files.keys import Identity, identity, refuse_unsavable, state_of
from devexplorer.core.files.manifest import KEY, SEPARATOR, SavedObject, encoded
from devexplorer.core.files.opening import as_known, goes_to, origin, with_origin
from devexplorer.core.files.records import Save, SaveWorkspace
from devexplorer.core.files.safe_file import DTYPES
from devexplorer.core.models import device_id, dtype_name, is_uninitialised, type_name
from devexplorer.core.records import Answer, Fact, Offer
from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.workspace import CommandResult, Refused, Workspace

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def checked_path(command: Save | SaveWorkspace, form: str) -> Path:
    """Where to write; `BadInput` for what cannot be a new file. A link is followed, so that what it points to is
    replaced."""
    path = command.path
    if not path.strip():
        raise BadInput("the file needs a name")
    if "\0" in path:
        raise BadInput("the name of the file holds a zero byte; choose another one")
    target = Path(path).expanduser()
    if os.path.islink(target):
        target = Path(os.path.realpath(target))
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
    if os.path.exists(target) and not command.overwrite:
        raise Refused(
            f"there is a file '{path}' already; choose another name, or overwrite it",
            offers=(Offer("Overwrite it", replace(command, overwrite=True, request=0)),),
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
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    # the widest first, so that everything is aligned
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    for key, tensor in ordered:
        if tensor.dtype not in _NAMES:
            raise BadInput(f"'{key}' is {dtype_name(tensor.dtype)}, which safetensors cannot hold; save it as .pt")
        end = offset + tensor.nbytes
        header[key] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with temporary.open("wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for _, tensor in ordered:
            plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
            for piece in cut(plain.view(-1)):
                tick(piece.nbytes)
                file.write(memoryview(piece.cpu().view(torch.uint8).numpy()))  # type: ignore[arg-type]
    return 8 + len(text) + offset


def write_torch(temporary: Path, thing: Any, tick: Ticker) -> int:
    """torch.save of tensors in containers, or of a module. Returns the bytes of the file."""
    with temporary.open("wb") as file:
        watched = _WatchedFile(file, tick)
        try:
            torch.save(thing, watched)  # type: ignore[arg-type]  # it asks for `write` and `flush` alone
        except Exception as error:
            if watched.stopped is not None:
                raise watched.stopped from None
            raise BadInput(
                f"torch.save cannot write a {type(thing).__name__}: {first_line(error)}; save its state dict instead"
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


FORMS = ("safetensors", "pt", "module")
HEADER_BYTES = 200
"""Room for what is not values, for each tensor, when it is asked whether the disk has room."""


def save(workspace: Workspace, command: Save, progress: ProgressMonitor) -> CommandResult:
    """Write the file."""
    if command.form not in FORMS:
        raise BadInput(f"there is no format '{command.form}'; there are {', '.join(FORMS)}")
    gathered = gather(workspace, command)
    if command.form == "module" and (len(command.targets) != 1 or isinstance(gathered.items[0].thing, Tensor)):
        raise BadInput("the format 'module' is for one model, or one part of a model; choose 'safetensors' or 'pt'")
    target = checked_path(command, command.form)
    replaced = os.path.exists(target)
    known = as_known(command)
    tick = Ticker(progress, gathered.nbytes, f"writing {Path(known.path).name}", "nothing was written")
    with written(known.path, target, gathered.nbytes + HEADER_BYTES * len(gathered.tensors)) as temporary:
        if command.form == "safetensors":
            size = write_safetensors(temporary, gathered.tensors, _metadata(gathered), tick)
        elif command.form == "pt":
            size = write_torch(temporary, _hosted(gathered), tick)
        else:
            size = write_torch(temporary, gathered.items[0].thing, tick)
    return CommandResult(_answer(command, gathered, size, replaced))


def _metadata(gathered: Gathered) -> dict[str, str]:
    """For transformers the format; for everybody the ties, as `safetensors.torch.save_model` writes them; then our
    own."""
    objects = tuple(item.about for item in gathered.items)
    if gathered.plain:
        objects = (replace(objects[0], name=""),)
    return {**gathered.ties, "format": "pt", KEY: encoded(objects)}


def _hosted(gathered: Gathered) -> Any:
    """A tensor, a state dict, or a dict of them, as torch.save should write it: virtual tensors in host memory, views
    without the storage around them, ties kept."""
    seen: dict[Identity, Tensor] = {}
    made: dict[str, Any] = {}
    for item in gathered.items:
        state = {}
        for key, tensor in item.tensors.items():
            known = identity(tensor)
            if known not in seen:
                seen[known] = _plain(tensor)
            state[key] = seen[known]
        made[item.name] = state
        if isinstance(item.thing, Tensor):
            made[item.name] = state[""]
    if len(made) == 1:
        return made[gathered.items[0].name]
    return made


def _plain(tensor: Tensor) -> Tensor:
    made = tensor.detach()
    if made.device.type == KIND:
        made = made.cpu()
    if made.nbytes != made.untyped_storage().nbytes() or not made.is_contiguous():
        made = made.clone(memory_format=torch.contiguous_format)
    return made.requires_grad_(tensor.requires_grad and tensor.is_leaf and not isinstance(tensor, nn.Parameter))


def _answer(command: Save, gathered: Gathered, size: int, replaced: bool) -> Answer:
    words = [f"{count_text(len(gathered.tensors), 'tensor')}, {bytes_text(gathered.nbytes)} of values."]
    if command.form != "module":
        for key, kept in list(gathered.ties.items())[:1]:
            words.append(f"{key} is the very same tensor as {kept}: it is in the file once, and loading ties it again.")
        more = len(gathered.ties) - 1
        if more > 0:
            words.append(f"There are {more:,} more such names.")
    words += {"safetensors": _on_safetensors, "pt": _on_pt, "module": _on_module}[command.form](gathered)
    waiting = []
    hidden = []
    for item in gathered.items:
        waiting += [f"{item.name}:{key}" for key in item.about.waiting]
        if not item.tensors and not item.about.waiting:
            hidden.append(item.name)
    if waiting:
        words.append(f"{count_text(len(waiting), 'lazy parameter')} had no values yet: {waiting[0]}.")
    if hidden:
        words.append(f"{list_text(hidden)} has no registered tensors: no value of it is in the file.")
    if replaced:
        words.append("The previous file was intact until the new one was complete.")
    devices = sorted({device_id(tensor.device) for tensor in gathered.tensors.values()})
    named = "everything"
    subject = None
    if command.targets:
        named = objects_text(command.targets)
    if len(command.targets) == 1:
        subject = object_name(named)
    are = "is" if len(command.targets) < 2 else "are"
    done = "saved" if command.sent_to is None else "written"
    return Answer(
        title=f"{named} {are} {done}",
        words=" ".join(words) + goes_to(command),
        facts=(
            Fact("file", origin(command)),
            Fact("size", bytes_text(size)),
            Fact("tensors", f"{len(gathered.tensors):,}"),
            Fact("they were on", ", ".join(devices) or "no device"),
        ),
        code=with_origin(code.save(as_known(command), gathered), command),
        subject=subject,
    )


def _on_safetensors(gathered: Gathered) -> list[str]:
    words = ["A safetensors file is a table of contents and bytes: it cannot run code, and parts can be read alone."]
    sample, own = [], []
    for item in gathered.items:
        if item.about.recipe:
            sample.append(item.name)
        elif item.about.kind == "model":
            own.append(item.name)
    if sample and not gathered.plain:
        words.append(f"Loading it builds {list_text(sample)} again.")
    if own and not gathered.plain:
        words.append(f"Of {list_text(own)} only the values are in it. Open the model again, then load them into it.")
    return words


def _on_pt(gathered: Gathered) -> list[str]:
    words = ["torch.save writes a pickle and the bytes; weights_only=True loads it without running code."]
    kinds = {tensor.device.type for tensor in gathered.tensors.values()}
    if kinds - {"cpu", KIND}:
        words.append("Tensors remember their device: where there is none of that name, loading needs map_location.")
    if KIND in kinds:
        words.append("What was on a virtual GPU is a tensor of the CPU in the file, so that it loads everywhere.")
    return words


def _on_module(gathered: Gathered) -> list[str]:
    own = type(gathered.items[0].thing)
    return [
        f"torch.save(model) pickles the object: the file names its class ({own.__module__}.{own.__qualname__}), not its"
        " code. Loading imports that class, as it is then, and runs what the pickle says. A state dict has the values"
        " alone and loads into any model with those names: DevExplorer opens no other."
    ]


# --- what is written


@dataclass
class Item:
    """One target: an object, or a part of a model."""

    name: str
    """What it is called in the file."""
    target: str
    thing: nn.Module | Tensor
    tensors: dict[str, Tensor]
    """By key below the item; a tensor has the empty key."""
    about: SavedObject


@dataclass
class Gathered:
    """All of it."""

    items: list[Item]
    plain: bool
    """One state dict, whose keys have no prefix."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """What is written, by key in the file; each tensor once."""
    ties: dict[str, str] = field(default_factory=dict)
    """Other key of a tensor -> the key under which it is written."""

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def gather(workspace: Workspace, command: Save) -> Gathered:
    """Find everything; `BadInput` lists all that is wrong."""
    targets = tuple(dict.fromkeys(command.targets or workspace.names))
    if not targets:
        raise BadInput("the workspace is empty: there is nothing to save")
    findings = Findings()
    items = []
    for target in targets:
        item = findings.checked(partial(_item, workspace, target, whole=not command.targets))
        if item is not None:
            items.append(item)
    findings.demand_none()
    alone = len(items) == 1 and isinstance(items[0].thing, nn.Module)
    gathered = Gathered(items, alone and bool(command.targets) and not command.named)
    seen: dict[Identity, str] = {}
    for item in items:
        for below, tensor in item.tensors.items():
            key = below
            if not gathered.plain:
                key = SEPARATOR.join(filter(None, (item.name, below)))
            kept = seen.setdefault(identity(tensor), key)
            if kept == key:
                gathered.tensors[key] = tensor
            else:
                gathered.ties[key] = kept
    return gathered


def _item(workspace: Workspace, target: str, *, whole: bool) -> Item:
    thing = workspace.find(target).thing
    name = target.replace(SEPARATOR, "_")
    if isinstance(thing, Tensor):
        refuse_unsavable(target, thing)
        place: dict[str, tuple[str, ...]] = {device_id(thing.device): ()}
        about = SavedObject(
            name=name, kind="tensor", type=type_name(thing), devices=place, requires_grad=thing.requires_grad
        )
        return Item(name, target, thing, {"": thing}, about)
    tensors = state_of(thing)
    if not tensors and not whole:
        raise BadInput(f"'{target}' has no registered parameters and no buffers: there is nothing to save")
    waiting = []
    devices: dict[str, list[str]] = {}
    for key, tensor in list(tensors.items()):
        if whole and is_uninitialised(tensor):
            waiting.append(key)
            del tensors[key]
            continue
        refuse_unsavable(f"{target}:{key}", tensor)
        devices.setdefault(device_id(tensor.device), []).append(key)
    most = max(devices, key=lambda device: len(devices[device]), default=None)
    about = SavedObject(
        name=name,
        kind="model",
        type=type_name(thing),
        devices={device: () if device == most else tuple(keys) for device, keys in devices.items()},
        frozen=tuple(key for key, one in thing.named_parameters(remove_duplicate=False) if not one.requires_grad),
        training=thing.training,
        other_modes=tuple(path for path, module in thing.named_modules() if module.training != thing.training),
        waiting=tuple(waiting),
    )
    if ":" in target:
        return Item(name, target, thing, tensors, replace(about, kind="part"))
    extras = workspace.extras(target)
    about = replace(about, recipe=extras.recipe, seed=extras.seed, source=extras.source, inputs=extras.inputs)
    return Item(name, target, thing, tensors, about)
