"""Carries out `SaveWorkspace`, `OpenWorkspace` and `NewWorkspace`; and opens a workspace file in the Python of a
session. Runs on the jobs thread."""

from __future__ import annotations

import traceback
import uuid
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from devexplorer.core.base import (
    NO_PROGRESS,
    BadInput,
    DevExplorerError,
    DoesNotFit,
    ProgressMonitor,
    bytes_text,
    count_text,
    first_line,
    list_text,
    quoted,
    variable,
)
from devexplorer.core.commands.handlers import add_gpus, remove
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.profiles import MAX_DEVICES, load_profiles, name_words
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.files.entries import Ticker
from devexplorer.core.files.opening import as_known, goes_to, origin, with_origin
from devexplorer.core.files.own_models import NO_HOPS, built, run_model_code
from devexplorer.core.files.records import NewWorkspace, OpenWorkspace, RunModelCode, SaveWorkspace, WorkspaceFile
from devexplorer.core.files.save import HEADER_BYTES, checked_path, written
from devexplorer.core.files.workspace_format import LAYOUT_LIMIT, Manifest, SavedDevice
from devexplorer.core.files.workspace_reading import OpenedWorkspaceFile as OpenedFile
from devexplorer.core.files.workspace_reading import Read, opened_workspace
from devexplorer.core.files.workspace_writing import collect, write
from devexplorer.core.models import StoredModule
from devexplorer.core.records import Answer, Fact, Offer, Remove
from devexplorer.core.virtual import backend
from devexplorer.core.workspace import CommandResult, CreateChange, Refused, Workspace
from devexplorer.core.workspace.history import ReplaceChange, offloaded_bytes
from devexplorer.core.workspace.optimizer_state import optimizer_variable


def save_workspace(workspace: Workspace, command: SaveWorkspace, progress: ProgressMonitor) -> CommandResult:
    """Write the file."""
    if len(command.layout) > LAYOUT_LIMIT:
        raise BadInput("the layout of the window is too long to be saved")
    target = checked_path(command, "safetensors")
    known, sent = as_known(command), command.sent_to
    collected = collect(workspace, uuid.uuid4().hex, command.layout, command.copy_of, command.copy_of_far)
    nbytes = sum(tensor.nbytes for tensor in collected.values.values())
    if command.most_bytes is not None and nbytes > command.most_bytes:
        raise BadInput(f"it takes {bytes_text(nbytes)}, and {bytes_text(command.most_bytes)} is the most")
    tick = Ticker(progress, nbytes, f"writing {Path(known.path).name}", "nothing was written")
    with written(known.path, target, nbytes + HEADER_BYTES * (len(collected.values) + 10)) as temporary:
        size = write(temporary, collected, tick)
    objects = collected.manifest.objects
    words = "With values, devices and optimizers; undo history is not saved."
    if collected.lost:
        words += f" A workspace file cannot hold {list_text(collected.lost)}."
    done = "saved" if sent is None else "written"
    answer = Answer(
        title=f"{Path(known.path).name} is {done}",
        words=words + goes_to(command),
        facts=(
            Fact("file", origin(command)),
            Fact("size", bytes_text(size)),
            Fact("objects", f"{len(objects):,}"),
        ),
    )
    code = []
    for name in workspace.names:
        extras = workspace.extras(name)
        if extras.source is not None and extras.recipe is None:
            code.append(name)
    path = str(target.absolute())
    back = OpenWorkspace(path=path, replace=True, stamp=collected.manifest.stamp, code=tuple(code), sent_from=sent)
    event = WorkspaceFile(path=path, again=back, lost=tuple(collected.lost))
    if sent is not None:
        contents = workspace.history.contents
        event = msgspec.structs.replace(event, path="", sent_from=sent, on_its_way=True, contents=contents)
    return CommandResult(answer, events=(event,))


def open_workspace(workspace: Workspace, command: OpenWorkspace, progress: ProgressMonitor) -> CommandResult:
    """Make the workspace what it was. Everything is read first, then takes the place of what is here; where there is no
    room for both, the file is checked to its last byte, and what is here is removed first."""
    if workspace.names and not command.replace:
        instead = msgspec.structs.replace(command, replace=True, request=0)
        raise Refused(
            f"the workspace holds {count_text(len(workspace.names), 'object')}; save or remove them first, or replace"
            " them",
            offers=(Offer("Replace what is here", instead),),
        )
    known = as_known(command)
    with opened_workspace(known.path, command.path) as file:
        manifest = file.manifest
        if command.stamp and manifest.stamp != command.stamp:
            raise BadInput(f"'{known.path}' was saved again since; open it to get what is in it now")
        before = len(workspace.registry.infos())
        devices, notes, offers = _devices(workspace.registry, manifest, command)
        names = workspace.names
        workspace.changed(f"the opening of {Path(known.path).name}")  # before a removal gives it a name
        read: dict[str, Read] = {}
        try:
            _make_room(workspace, file, devices, progress)
            read = file.read(workspace.registry, devices, progress)
            read = _complete(workspace, read, command, notes, progress)
        except BaseException as error:  # the old objects need the memory again
            read.clear()
            traceback.clear_frames(error.__traceback__)
            raise
    removed = tuple(name for name in names if name not in read)
    change = CreateChange(*read) if workspace.names == names else ReplaceChange(*read)
    if workspace.names:
        remove(workspace, Remove(names=workspace.names), progress)
    workspace.add_all(read)
    workspace.changed("", change)
    snapshots = workspace.snapshots(read)
    path = str(Path(command.path).expanduser().absolute())
    again = msgspec.structs.replace(command, path=path, replace=True, stamp=manifest.stamp)
    owner, sent, place = path, command.sent_from, path
    if sent is not None:
        owner, place = "", known.path
        notes.append(f"Its file stays on {sent.machine}; Save writes it there.")
    title = f"{Path(known.path).name} is open"
    if command.copy:
        owner, sent, title = manifest.copy_of, manifest.copy_of_far, "The unsaved work is back"
    size = sum(sum(snapshot.bytes_by_device.values()) for snapshot in snapshots)
    answer = Answer(
        title=title,
        words=" ".join([f"{count_text(len(read), 'object')}, as saved.", *notes]),
        facts=(
            Fact("file", origin(command)),
            Fact("objects", f"{len(read):,}, {bytes_text(size)}"),
        ),
        offers=tuple(offers),
        code=with_origin(_opening_code(msgspec.structs.replace(again, path=place), read), command),
    )
    return CommandResult(
        answer,
        snapshots,
        removed=removed,
        events=(
            WorkspaceFile(
                path=owner, copy=command.copy, sent_from=sent, again=again, opened=True, layout=manifest.layout
            ),
        ),
        devices_changed=len(workspace.registry.infos()) != before,
    )


def new_workspace(workspace: Workspace, command: NewWorkspace, progress: ProgressMonitor) -> CommandResult:
    """Remove every object. The devices stay: they are what the user works with, not what the work is."""
    workspace.changed("the new workspace")  # before the removal gives it a name
    names = workspace.names
    answer = Answer(title="The workspace is new", words="It has no objects and no file.")
    if names:
        removed = remove(workspace, Remove(names=names), progress).answer
        answer = msgspec.structs.replace(answer, words=f"{count_text(len(names), 'object')} removed. {removed.words}")
    event = WorkspaceFile(path="", again=NewWorkspace(), opened=True)
    return CommandResult(answer, removed=names, events=(event,))


def _opening_code(again: OpenWorkspace, read: Mapping[str, Read]) -> str:
    """Python that gives every object its variable, and a split model or one with an optimizer those of theirs."""
    if again.copy:
        words = "a copy of unsaved work began this session, and it is gone: save the workspace, and open it from there"
        return f"raise SystemExit({quoted(words)})"
    given = f"stamp={quoted(again.stamp)}, code={again.code!r}, virtual={again.virtual}"
    lines = [f"_opened = OpenedWorkspace({quoted(again.path)}, {given})"]
    for name, (_, extras) in read.items():
        lines.append(f"{variable(name)} = _opened[{quoted(name)}]")
        if extras.optimizer is not None:
            lines.append(f"{optimizer_variable(name)} = _opened.optimizer({quoted(name)})")
        if extras.hops is not None:
            lines.append(extras.hops.python_of_opened(name))
    return "\n".join(["from devexplorer import OpenedWorkspace\n", *lines])


def _make_room(workspace: Workspace, file: OpenedFile, devices: Mapping[str, str], progress: ProgressMonitor) -> None:
    """Remove what is here where the values of the file do not fit beside it. Undo brings it back, and so does a failure
    of what follows; where it is too large for Undo, it is removed only if there will be room for sure."""
    try:
        file.check_room(workspace.registry, devices)
    except DoesNotFit:
        things = [(workspace.get(name), workspace.extras(name)) for name in workspace.names]
        if not things:
            raise
        if not workspace.history.fits(sum(offloaded_bytes(*thing) for thing in things)):
            file.check_room(workspace.registry, devices, workspace.held_bytes_by_device())
        file.check_sum(Ticker(progress, 1, "checking the file", "nothing was opened"))
        del things
        remove(workspace, Remove(names=workspace.names), progress)


def _devices(
    registry: DeviceRegistry, manifest: Manifest, command: OpenWorkspace
) -> tuple[Mapping[str, str], list[str], list[Offer]]:
    """Where the tensors of each saved device go, what to say about it, and what else could be done.

    Virtual GPUs that are missing are added: a card of the same kind under the same id where that is free.
    """
    here = {info.id: info for info in registry.infos() if info.usable}
    profiles = {name_words(profile.name): profile.name for profile in load_profiles().values()}
    used = {tensor.device for tensor in manifest.tensors} - {"meta"}
    saved = {device.id: device for device in manifest.devices}
    for name in sorted(used):
        saved.setdefault(name, SavedDevice(id=name, name=""))
    devices = {"meta": "meta", "cpu": "cpu"}
    notes: list[str] = []
    offers: list[Offer] = []
    missing: list[SavedDevice] = []
    for device in saved.values():
        same = here.get(device.id)
        if same is not None and (not device.simulated or (same.simulated and same.name == device.name)):
            devices[device.id] = device.id
        elif device.id in used or device.simulated:
            missing.append(device)
    for device in missing:
        profile = profiles.get(name_words(device.name))
        taken = set(devices.values())
        if device.simulated or command.virtual:
            spare = [info.id for info in here.values() if info.simulated and info.name == profile]
            spare = [name for name in spare if name not in taken]
            if not spare and profile is not None and sum(info.simulated for info in registry.infos()) < MAX_DEVICES:
                try:
                    spare += add_gpus(registry, profile)
                except DevExplorerError as error:
                    notes.append(f"{first_line(error)}.")
            if spare:
                devices[device.id] = spare[0]
        elif profile is not None and not offers:
            again = msgspec.structs.replace(command, replace=True, virtual=True, request=0)
            offers.append(Offer("Use virtual GPUs for missing cards", again))
        where = devices.setdefault(device.id, "cpu")
        if device.id in used and where != device.id:
            kind = f" ({device.name[:60]})" if device.name else ""
            notes.append(f"{device.id}{kind} is not here: what was on it is on {where}.")
    return devices, notes, offers


def _complete(
    workspace: Workspace, read: Mapping[str, Read], command: OpenWorkspace, notes: list[str], progress: ProgressMonitor
) -> dict[str, Read]:
    """The objects, sample models as such again. What could not be built goes to the notes."""
    complete = dict(read)
    waiting: list[str] = []
    lone: list[str] = []
    for name, (thing, extras) in read.items():
        if not isinstance(thing, StoredModule) or thing.origin is None:
            continue
        origin = thing.origin
        if origin.recipe is None and name not in command.code:
            if origin.source is None:
                lone.append(name)
            else:
                waiting.append(name)
            continue
        try:
            complete[name] = Read(*built(workspace, thing, origin, extras, progress))
            if origin.hops and complete[name].extras.hops is None:
                notes.append(f"{name} can run.{NO_HOPS}")
        except BadInput as error:
            notes.append(f"Of {name} only the tensors are here: {error}.")
    if waiting:
        notes.append(f"{list_text(waiting)}: the tensors are here, and the code that makes the model has not run.")
    if lone:
        notes.append(f"{list_text(lone)}: the tensors are here; the file does not know what made the model.")
    return complete


class OpenedWorkspace:
    """The objects of a file on the devices that they were on; virtual GPUs that are missing are added.

    Code of the user's runs for the models in `code`, and for others at `run_code`; a model whose code has not run has
    its tensors alone. Warns where the file is not the one with this `stamp`. Raises `BadInput` for a file that cannot
    be opened, and where a model's code makes another model now.
    """

    def __init__(self, path: str, *, stamp: str = "", code: Sequence[str] = (), virtual: bool = False) -> None:
        with opened_workspace(path) as file:
            if stamp and file.manifest.stamp != stamp:
                warnings.warn(f"{path} was saved again since the session opened it: it has other values", stacklevel=2)
        cards = backend.installed()
        self._workspace = Workspace(DeviceRegistry([TorchBackend(), *([] if cards is None else [cards])]))
        command = OpenWorkspace(path=str(Path(path).absolute()), code=tuple(code), virtual=virtual)
        with self._workspace.history.transaction(command):
            open_workspace(self._workspace, command, NO_PROGRESS)

    def __getitem__(self, name: str) -> Any:
        """The tensor or model of that name."""
        return self._workspace.get(name)

    def optimizer(self, name: str) -> Any:
        """The optimizer of the model of that name, with its state."""
        return self._workspace.extras(name).optimizer

    def hops(self, name: str) -> Any:
        """What brings activations to the parts of the model; `remove()` takes it away."""
        return self._workspace.extras(name).hops

    def run_code(self, name: str) -> Any:
        """The model of that name, built by its code, with the very tensors of the file."""
        command = RunModelCode(target=name)
        with self._workspace.history.transaction(command):
            run_model_code(self._workspace, command, NO_PROGRESS)
        return self[name]
