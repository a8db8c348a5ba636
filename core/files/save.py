"""Carries out `Save`: gathers, writes files of tensors whole or not at all (safetensors piece by piece, `.pt` with
torch.save), and says what the file is good for. Runs on the jobs thread."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec
import torch
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
from devexplorer.core.files.opening import as_named, destination, goes_to, with_destination
from devexplorer.core.files.records import Save
from devexplorer.core.files.safe_file import DTYPES
from devexplorer.core.models import Extras, device_id, dtype_name, is_uninitialised, type_name
from devexplorer.core.records import Answer, Fact, Offer
from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.workspace import CommandResult, Refused, Workspace

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
            for piece in cut(_plain_tensor(tensor).view(-1)):
                tick(piece.nbytes)
                file.write(_bytes(piece))
    return 8 + len(text) + offset


def _plain_tensor(tensor: Tensor) -> Tensor:
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


FORMS = ("safetensors", "pt", "module")
HEADER_BYTES = 200
"""Room for what is not values, for each tensor, when it is asked whether the disk has room."""


def save(workspace: Workspace, command: Save, progress: ProgressMonitor) -> CommandResult:
    """Write the file."""
    if command.form not in FORMS:
        raise BadInput(f"there is no format '{command.form}'; there are {', '.join(FORMS)}")
    is_module = command.form == "module"
    gathered = _module(workspace, command) if is_module else gather(workspace, command.targets, named=command.named)
    target = checked_path(command.path, command.form)
    replaced = os.path.exists(target)
    if replaced and not command.overwrite:
        again = msgspec.structs.replace(command, overwrite=True, request=0)
        raise Refused(
            f"there is a file '{command.path}' already; choose another name, or overwrite it",
            offers=(Offer("Overwrite it", again),),
        )
    known = as_named(command)
    tick = Ticker(progress, gathered.nbytes, f"writing {Path(known.path).name}", "nothing was written")
    with written(known.path, target, gathered.nbytes + HEADER_BYTES * len(gathered.tensors)) as temporary:
        if command.form == "safetensors":
            size = write_safetensors(temporary, gathered.tensors, _metadata(gathered), tick)
        elif command.form == "pt":
            size = write_torch(temporary, _plain(gathered), tick)
        else:
            size = write_torch(temporary, gathered.items[0].thing, tick)
    return CommandResult(_answer(command, gathered, size, replaced))


def _metadata(gathered: Gathered) -> dict[str, str]:
    """For transformers the format; for everybody the ties, as `safetensors.torch.save_model` writes them; then our
    own."""
    objects = tuple(
        msgspec.structs.replace(item.about, name="") if gathered.plain else item.about for item in gathered.items
    )
    return {**gathered.ties, "format": "pt", KEY: encoded(objects)}


def _plain(gathered: Gathered) -> Any:
    """A tensor, a state dict, or a dict of them."""
    hosted = Hosted()

    def of(item: Item) -> Any:
        if isinstance(item.thing, Tensor):
            return hosted(item.thing)
        return {key: hosted(tensor) for key, tensor in item.tensors.items()}

    if len(gathered.items) == 1:
        return of(gathered.items[0])
    return {item.name: of(item) for item in gathered.items}


def _module(workspace: Workspace, command: Save) -> Gathered:
    if len(command.targets) != 1 or not isinstance(workspace.target(command.targets[0]).thing, nn.Module):
        raise BadInput("the format 'module' is for one model, or one part of a model; choose 'safetensors' or 'pt'")
    return gather(workspace, command.targets)


def _answer(command: Save, gathered: Gathered, size: int, replaced: bool) -> Answer:
    count = len(gathered.tensors)
    words = [f"{count_text(count, 'tensor')}, {bytes_text(gathered.nbytes)} of values."]
    if gathered.ties and command.form != "module":
        key, kept = next(iter(gathered.ties.items()))
        also = "" if len(gathered.ties) == 1 else f", and there are {len(gathered.ties) - 1:,} more such names"
        words.append(
            f"{key} is the very same tensor as {kept}{also}: it is in the file once, and loading ties the names again."
        )
    words += {"safetensors": _on_safetensors, "pt": _on_pt, "module": _on_module}[command.form](gathered)
    waiting = [f"{item.name}:{key}" for item in gathered.items for key in item.about.waiting]
    if waiting:
        words.append(
            f"{count_text(len(waiting), 'lazy parameter')} had no values yet and will have none: {waiting[0]}."
        )
    hidden = [item.name for item in gathered.items if not item.tensors and not item.about.waiting]
    if hidden:
        words.append(f"{list_text(hidden)} has no registered tensors: no value of it is in the file.")
    words.append(
        "It was written to a temporary file, then renamed"
        + (", so the old file was intact until then." if replaced else ".")
    )
    devices = sorted({device_id(tensor.device) for tensor in gathered.tensors.values()})
    facts = (
        Fact("file", destination(command)),
        Fact("size", bytes_text(size)),
        Fact("tensors", f"{count:,}"),
        Fact("they were on", ", ".join(devices) or "no device"),
    )
    named = objects_text(command.targets) if command.targets else "everything"
    done = "saved" if command.sent_to is None else "written"
    title = f"{named} {'is' if len(command.targets) < 2 else 'are'} {done}"
    subject = object_name(command.targets[0]) if len(command.targets) == 1 else None
    python = with_destination(code.save(as_named(command), gathered), command.sent_to)
    return Answer(title=title, words=" ".join(words) + goes_to(command), facts=facts, code=python, subject=subject)


def _on_safetensors(gathered: Gathered) -> Sequence[str]:
    words = [
        "A safetensors file is a table of contents and bytes: nothing in it can run code, and parts of it can be read"
        " alone."
    ]
    models = [item for item in gathered.items if item.about.kind == "model"]
    if not gathered.plain and models:
        sample = [item.name for item in models if item.about.recipe]
        own = [item.name for item in models if not item.about.recipe]
        if sample:
            words.append(f"Loading it builds {list_text(sample)} again.")
        if own:
            words.append(
                f"Of {list_text(own)} only the values are in it: a file never runs the code that makes a model. Open it"
                " again, then load."
            )
    return words


def _on_pt(gathered: Gathered) -> Sequence[str]:
    words = [
        "torch.save writes a pickle and the bytes; with weights_only=True it loads without running anything from it."
    ]
    devices = {tensor.device.type for tensor in gathered.tensors.values()} - {"cpu", KIND}
    if devices:
        words.append(
            "Every tensor in it remembers its device: where there is none of that name, loading needs map_location."
        )
    if any(tensor.device.type == KIND for tensor in gathered.tensors.values()):
        words.append("What was on a virtual GPU is a tensor of the CPU in the file, so that it loads everywhere.")
    return words


def _on_module(gathered: Gathered) -> Sequence[str]:
    item = gathered.items[0]
    own = type(item.thing)
    return [
        f"torch.save(model) pickles the {own.__name__} object itself: the file names its class"
        f" ({own.__module__}.{own.__qualname__}) and not its code. Loading it imports that class, as it is then,"
        " and runs what the pickle says, so weights_only has to be False, and a file from someone else could do"
        " anything. It breaks when the class is moved or renamed. A state dict has the values alone and loads into"
        " any model with those names: that is the better file, and DevExplorer opens no other."
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


def gather(workspace: Workspace, targets: tuple[str, ...], *, named: bool = False) -> Gathered:
    """Find everything; `BadInput` lists all that is wrong. `named`: also one model alone is not `plain`."""
    whole = not targets
    if whole and not workspace.names:
        raise BadInput("the workspace is empty: there is nothing to save")
    findings = Findings()
    checked = [
        findings.checked(partial(_item, workspace, target, lazy_too=whole))
        for target in dict.fromkeys(targets or workspace.names)
    ]
    findings.demand_none()
    items = [item for item in checked if item is not None]
    plain = not whole and not named and len(items) == 1 and isinstance(items[0].thing, nn.Module)
    gathered = Gathered(items, plain)
    seen: dict[Identity, str] = {}
    for item in items:
        for below, tensor in item.tensors.items():
            key = file_key(item.name, below, gathered.plain)
            kept = seen.setdefault(identity(tensor), key)
            if kept == key:
                gathered.tensors[key] = tensor
            else:
                gathered.ties[key] = kept
    return gathered


def file_key(name: str, below: str, plain: bool) -> str:
    """The key in the file of a tensor at `below` in an item."""
    if plain:
        return below
    return f"{name}{SEPARATOR}{below}" if below else name


def _item(workspace: Workspace, target: str, *, lazy_too: bool) -> Item:
    thing = workspace.find(target).thing
    tensors = {"": thing} if isinstance(thing, Tensor) else state_of(thing)
    waiting = tuple(key for key, tensor in tensors.items() if is_uninitialised(tensor)) if lazy_too else ()
    tensors = {key: tensor for key, tensor in tensors.items() if key not in waiting}
    if isinstance(thing, nn.Module) and not tensors and not lazy_too:
        raise BadInput(f"'{target}' has no registered parameters and no buffers: there is nothing to save")
    for key, tensor in tensors.items():
        refuse_unsavable(f"{target}:{key}" if key else target, tensor)
    called = target.replace(SEPARATOR, "_")
    return Item(called, target, thing, tensors, _about(workspace, called, target, thing, tensors, waiting))


def _about(
    workspace: Workspace,
    name: str,
    target: str,
    thing: nn.Module | Tensor,
    tensors: dict[str, Tensor],
    waiting: tuple[str, ...],
) -> SavedObject:
    devices: dict[str, list[str]] = {}
    for key, tensor in tensors.items():
        devices.setdefault(device_id(tensor.device), []).append(key)
    most = max(devices, key=lambda device: len(devices[device]), default=None)
    placed = {device: () if device == most else tuple(keys) for device, keys in devices.items()}
    if isinstance(thing, Tensor):
        return SavedObject(
            name=name, kind="tensor", type=type_name(thing), devices=placed, requires_grad=thing.requires_grad
        )
    part = ":" in target
    extras = Extras() if part else workspace.extras(target)
    parameters = dict(thing.named_parameters(remove_duplicate=False))
    return SavedObject(
        name=name,
        kind="part" if part else "model",
        type=type_name(thing),
        recipe=extras.recipe,
        seed=extras.seed,
        source=extras.source,
        inputs=extras.inputs,
        devices=placed,
        frozen=tuple(key for key, parameter in parameters.items() if not parameter.requires_grad),
        training=thing.training,
        other_modes=tuple(path for path, module in thing.named_modules() if module.training != thing.training),
        waiting=waiting,
    )
