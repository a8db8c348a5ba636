"""Carries out `Load` and `ListFile`: tensors of a file become objects, sample models of a workspace file are built
again; what is in a file is listed without reading a value. Runs on the jobs thread."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from devexplorer.core.base import (
    BadInput,
    ProgressMonitor,
    bytes_text,
    count_text,
    list_text,
    objects_text,
    python_names,
    quoted,
    shape_text,
    variable,
)
from devexplorer.core.files import code
from devexplorer.core.files.entries import TensorEntry, TensorFile, Ticker, shown
from devexplorer.core.files.keys import slots, state_of
from devexplorer.core.files.manifest import SEPARATOR, SavedObject
from devexplorer.core.files.opening import as_known, opened, origin, plain_prefix, with_origin
from devexplorer.core.files.records import FileContents, FileEntry, FileListed, ListFile, Load, LoadCheckpoint
from devexplorer.core.models import Extras, dtype_name, is_uninitialised, samples
from devexplorer.core.records import Answer, Fact, Move, Offer
from devexplorer.core.virtual.torch_api.lazy import move_uninitialised
from devexplorer.core.workspace import CommandResult, CreateChange, Workspace, check_sizes

MOST_TENSORS = 1000
"""Objects that one command makes of a file: more would be of no use."""


@dataclass
class Loading:
    """What one `Load` takes from a file."""

    wanted: list[SavedObject | TensorEntry] = field(default_factory=list)
    """Sample models, to be built again; of everything else the tensors."""
    waiting: list[str] = field(default_factory=list)
    """Models of the workspace that have the keys of a model in the file, which is not loaded but offered."""
    values_only: list[SavedObject] = field(default_factory=list)
    """Models of which the tensors are loaded, because only the user's code could build them."""
    models: dict[str, SavedObject] = field(default_factory=dict)
    """Name of a new model -> what it is in the file."""
    bound: dict[str, TensorEntry] = field(default_factory=dict)
    """Name of a new tensor -> what it is in the file."""
    tied: dict[str, str] = field(default_factory=dict)
    """New name -> the earlier one that means the very same tensor."""


def load(workspace: Workspace, command: Load, progress: ProgressMonitor) -> CommandResult:
    """Load what was chosen, all or nothing."""
    device = workspace.registry.choose(command.device)
    known = as_known(command)
    with opened(known.path, command.path) as file:
        loading = choose(workspace, file, command.entries)
        sizes = _sizes(file, loading)
        alone = len(loading.wanted) == 1
        if command.name is not None:  # with several it is the beginning of their names
            python_names.checked_name(command.name, workspace.names if alone else ())
        check_sizes(sizes, device, workspace.registry, "what is to be loaded")
        tick = Ticker(progress, sum(sizes), f"reading {shown(known.path)}", "nothing was loaded")
        taken = list(workspace.names)
        made: dict[str, tuple[nn.Module | Tensor, Extras]] = {}
        first: dict[str, str] = {}
        for item in loading.wanted:
            key, prefix = stem_of(known.path), command.name
            if isinstance(item, SavedObject):
                key, prefix = item.name, None
            elif item.place:
                key = item.key
            name = name_for(key, prefix, known.path, taken)
            if command.name and alone:
                name = command.name.strip()
            taken.append(name)
            if isinstance(item, SavedObject):
                extras = Extras(recipe=item.recipe, source=item.recipe, inputs=item.inputs[:200], seed=item.seed)
                made[name], loading.models[name] = (_rebuilt(item, file, device, tick), extras), item
                continue
            loading.bound[name] = item
            same = first.setdefault(item.same_as or item.key, name)
            if same == name:
                made[name] = _read(file, item, device, tick), Extras()
            else:
                made[name], loading.tied[name] = (made[same][0], Extras()), same
        if not made and not loading.waiting:
            raise BadInput(f"'{file.path}' has no values that could become an object")
        if not made:
            return CommandResult(_only_offers(command, loading))
        workspace.add_all(made)
        title = f"the loading of {shown(known.path)}"
        if command.sent_from is not None and command.sent_from.objects:
            title = f"the copy of {objects_text(list(made))} from {command.sent_from.machine}"
        workspace.changed(title, CreateChange(*made))
        answer = _loaded_answer(command, device, file, loading, sum(sizes), workspace.registry.usable())
        return CommandResult(answer, workspace.snapshots(made))


def choose(workspace: Workspace, file: TensorFile, keys: Sequence[str]) -> Loading:
    """What is asked for; `BadInput` for what is not in the file."""
    models = file.models
    if not file.entries and not models:
        raise BadInput(f"there are no tensors in '{file.path}'")
    known = dict.fromkeys((*models, *file.entries))
    wrong = []
    for key in keys:
        if key not in known:
            wrong.append(f"there is no '{shown(key)}' in the file; {python_names.suggestion(key, known)}")
    if wrong:
        raise BadInput(*wrong)
    loading = Loading()
    for key in dict.fromkeys(keys or known):
        if key in models:
            _choose_model(workspace, file, models[key], loading)
        elif keys or key.partition(SEPARATOR)[0] not in models:
            loading.wanted.append(file.entries[key])
    return loading


def _choose_model(workspace: Workspace, file: TensorFile, item: SavedObject, loading: Loading) -> None:
    below = file.below(item.name)
    there = workspace.get(item.name) if item.name in workspace.names else None
    if _fits(item, below):
        loading.wanted.append(item)
    elif isinstance(there, nn.Module) and set(state_of(there)) == set(below):
        loading.waiting.append(item.name)
    else:
        loading.values_only.append(item)
        loading.wanted += below.values()


def _sizes(file: TensorFile, loading: Loading) -> list[int]:
    """Bytes of each new tensor."""
    if len(loading.wanted) > MOST_TENSORS:
        raise BadInput(
            f"'{file.path}' holds {len(loading.wanted):,} objects, and at most {MOST_TENSORS:,} become objects at once;"
            " choose some of them, or make the model and load the file into it as a checkpoint"
        )
    entries: dict[str, TensorEntry] = {}
    for item in loading.wanted:
        if isinstance(item, SavedObject):
            for entry in file.below(item.name).values():
                entries[entry.key] = entry
        else:
            entries[item.key] = item
    return [entry.nbytes for entry in entries.values() if entry.same_as not in entries]


def _read(file: TensorFile, entry: TensorEntry, device: str, tick: Ticker) -> Tensor:
    tensor = torch.empty(entry.shape, dtype=entry.dtype, device=device)
    file.fill(entry, tensor, tick)
    wanted = entry.requires_grad
    if file.document is not None:
        for item in file.document.objects:
            wanted = wanted or (item.name == entry.key and item.kind == "tensor" and item.requires_grad)
    return tensor.requires_grad_(wanted and _may_require_gradient(entry))


def _may_require_gradient(entry: TensorEntry) -> bool:
    return entry.dtype.is_floating_point or entry.dtype.is_complex


# --- names


_FORBIDDEN = re.compile(r"[^\w \-.]+")


def stem_of(path: str) -> str:
    """The file's name as the beginning of a name."""
    return _clean(Path(path).name.partition(".")[0]) or "tensor"


def name_for(key: str, prefix: str | None, path: str, taken: Collection[str]) -> str:
    """A new name for the tensor with this key: after `prefix`, or after the file's name where the key alone cannot be
    one."""
    own = _FORBIDDEN.sub(".", key).strip(" .-")
    whole = own
    if prefix or not own or _clean(own) != own:
        whole = ".".join(filter(None, (prefix or stem_of(path), own)))
    limit = python_names.LENGTH_LIMIT - 6  # room for the number that makes it unique
    whole = _clean(whole[-limit:])
    return python_names.unique_name(whole.rstrip(" .-") or "tensor", taken)


def _clean(text: str) -> str:
    """Without what cannot be in a name; it begins with a letter."""
    return re.sub(r"^[\W\d_]+", "", _FORBIDDEN.sub(".", text)).strip()


# --- sample models


def _fits(item: SavedObject, entries: Mapping[str, TensorEntry]) -> bool:
    """Whether the file has the values of that sample model, as it is today. Builds it without values: a file may say
    anything."""
    if item.recipe not in samples.recipes() or not 0 <= item.seed < 1 << 63:
        return False
    for key, shape in _shapes(item.recipe).items():
        entry = entries.get(key)
        if entry is None and (shape is not None or key not in item.waiting):
            return False
        if entry is not None and shape is not None and entry.shape != shape:
            return False
    return True


@lru_cache(maxsize=32)  # a file can name one many times
def _shapes(recipe: str) -> Mapping[str, tuple[int, ...] | None]:
    """What a sample model has, by key; None: a lazy parameter."""
    state = state_of(samples.meta(recipe))
    return {key: None if is_uninitialised(tensor) else tuple(tensor.shape) for key, tensor in state.items()}


def _rebuilt(item: SavedObject, file: TensorFile, device: str, tick: Ticker) -> nn.Module:
    """The sample model on the device, with the values, dtypes and flags of the file; `_fits` was asked before."""
    model = samples.build(str(item.recipe), item.seed)
    entries = file.below(item.name)
    new: dict[int, Tensor] = {}
    for path, part, name, tensor in list(slots(model)):
        key = f"{path}.{name}" if path else name
        entry = entries.get(key)
        if entry is None:
            move_uninitialised(tensor, device)
            continue
        if id(tensor) not in new:
            made = torch.empty(entry.shape, dtype=entry.dtype, device=device)
            file.fill(entry, made, tick)
            if isinstance(tensor, nn.Parameter):
                made = nn.Parameter(made, key not in item.frozen and _may_require_gradient(entry))
            new[id(tensor)] = made
        setattr(part, name, new[id(tensor)])  # a module's own __setattr__ does more: an LSTM lists its weights
    model.train(item.training)
    for path, part in model.named_modules():
        if path in item.other_modes:
            part.training = not item.training
        for name in part._non_persistent_buffers_set:
            buffer = part._buffers[name]
            if buffer is not None:
                part._buffers[name] = buffer.to(device)
    return model


# --- what is said about it


def _loaded_answer(
    command: Load, device: str, file: TensorFile, loading: Loading, nbytes: int, usable: Collection[str]
) -> Answer:
    """What was loaded."""
    names = [*loading.models, *loading.bound]
    objects = count_text(len(names), "object")
    taken = list(loading.bound.values())
    for item in loading.models.values():
        taken += file.below(item.name).values()
    saved_on = sorted({entry.device for entry in taken if entry.device is not None})
    words = []
    for name, entry in list(loading.bound.items())[:1]:
        words.append(f"{name} is {shape_text(entry.shape)} {dtype_name(entry.dtype)}.")
    for name, item in loading.models.items():
        words.append(f"{name} was built again as the sample model {item.recipe}, with the values that were saved.")
    sent = command.sent_from
    if sent is not None and sent.objects:
        were = "was" if len(names) == 1 else "were"
        title = f"{objects_text(names)} {were} copied from {sent.machine}"
        first, done, before = Fact("copied from", sent.machine), "copied", f"device on {sent.machine}"
        words = [*_new_names(loading), *words, "A later change on one machine does not reach the other."]
    else:
        title = f"{names[0]} is on {device}" if len(names) == 1 else f"{objects} are loaded"
        first, done, before = Fact("file", origin(command)), "loaded", "saved on"
        words.append(_device_words(file, device, saved_on))
    for name, same in list(loading.tied.items())[:1]:
        words.append(f"{same} and {name} are two names of one tensor: changing one changes both.")
    words += file.notes
    if loading.values_only:
        sources = [f" ({shown(item.source)})" for item in loading.values_only if item.source]
        words.append(
            f"Of {list_text([shown(item.name) for item in loading.values_only])} only the tensors were loaded: the"
            " model itself would be built by code, which a file never runs. Open the model again"
            f"{''.join(sources[:1])}, then load this file into it."
        )
    if loading.waiting:
        words.append(f"The values of {list_text(loading.waiting)} were left in the file: that model can load them.")
    offers = _checkpoint_offers(command, loading)
    if done == "loaded" and len(saved_on) == 1 and saved_on[0] != device and saved_on[0] in usable:
        back = Move(targets=tuple(names), device=saved_on[0])
        offers.insert(0, Offer(f"Move to {saved_on[0]}, where it was", back))
    return Answer(
        title=title,
        words=" ".join(words),
        facts=(
            first,
            Fact(done, f"{objects}, {bytes_text(nbytes)} on {device}"),
            Fact(before, ", ".join(saved_on) or "the file does not say"),
        ),
        code=with_origin(_code(as_known(command), device, file, loading), command),
        offers=tuple(offers),
        subject=names[0] if len(names) == 1 else None,
    )


def _only_offers(command: Load, loading: Loading) -> Answer:
    """Nothing was made: everything asked for waits for a model that is there."""
    return Answer(
        title="Nothing new was loaded",
        words=(
            f"The workspace has {list_text(loading.waiting)} with the same keys. A file never builds a model by running"
            " code, but its values can be loaded into the model that is there."
        ),
        offers=tuple(_checkpoint_offers(command, loading)),
        code=f"# {variable(loading.waiting[0])} is there already",
        subject=loading.waiting[0],
    )


def _checkpoint_offers(command: Load, loading: Loading) -> list[Offer]:
    offers = []
    for name in loading.waiting[:3]:
        into = LoadCheckpoint(target=name, path=command.path, sent_from=command.sent_from)
        offers.append(Offer(f"Load into {name}", into))
    return offers


def _new_names(loading: Loading) -> list[str]:
    """The first objects that are called otherwise than on the other machine, where that name was taken."""
    before = {name: item.name for name, item in loading.models.items()}
    for name, entry in loading.bound.items():
        before[name] = entry.key
    words = []
    for name, called in before.items():
        if name != called and SEPARATOR not in called:
            words.append(f"It is called {name} here, because there was {shown(called)} already.")
    return words[:3]


def _device_words(file: TensorFile, device: str, saved_on: list[str]) -> str:
    words = f"It is on {device} now."
    if saved_on:
        words = f"It was saved on {list_text(saved_on)} and is on {device} now."
    if file.form == "pt":
        words += (
            f" map_location={quoted(device)} put it there. Without it torch.load uses the device recorded in the file,"
            " and fails where there is none of that name."
        )
    return words


def _code(command: Load, device: str, file: TensorFile, loading: Loading) -> str:
    plain = plain_prefix(command.sent_from, file)
    bound = []
    for name, entry in loading.bound.items():
        below = code.index(entry.place)
        if plain and entry.place:
            below = code.index((str(entry.place[0]).removeprefix(plain), *entry.place[1:]))
        if name in loading.tied:
            below = variable(loading.tied[name])
        bound.append((name, below))
    if not loading.models:
        return code.loaded(command.path, file.form, device, bound)
    reading = code.loaded(command.path, file.form, "cpu", [])
    lines = ["import torch", reading.replace("\n\n", "\nfrom devexplorer import samples\n\n", 1)]
    for name, item in loading.models.items():
        own = variable(name)
        state = code.TENSORS
        if not plain:
            state, prefix = code.STATE, quoted(f"{item.name}{SEPARATOR}")
            own_keys = f"for key, value in {code.TENSORS}.items() if key.startswith({prefix})"
            lines.append(f"{state} = {{key.removeprefix({prefix}): value {own_keys}}}")
        lines.append(f"{own} = samples.build({quoted(item.recipe or '')}, seed={item.seed})")
        dtypes = {entry.dtype for entry in file.below(item.name).values() if entry.dtype.is_floating_point}
        if len(dtypes) == 1:
            lines.append(f"{own}.to(torch.{dtype_name(dtypes.pop())})")
        lines.append(f"{own}.load_state_dict({state}, strict=False)  # a tied key is in the file once")
        lines.append(f"{own}.to({quoted(device)})")
        if item.frozen:
            lines.append(f"for _path in {list(item.frozen)!r}:")
            lines.append(f"    {own}.get_parameter(_path).requires_grad_(False)")
        if not item.training:
            lines.append(f"{own}.eval()")
    return "\n".join([*lines, *code.assignments(bound, code.to(device))])


LISTED = 5000
"""Entries that are listed."""


def list_file(workspace: Workspace, command: ListFile, progress: ProgressMonitor) -> CommandResult:
    """Look into the file."""
    with opened(as_known(command).path, command.path) as file:
        contents = replace(contents_of(file), path=command.path)
        return CommandResult(_answer(command, file, contents), events=(FileListed(contents=contents),))


def contents_of(file: TensorFile) -> FileContents:
    """The record: tensors, or for a workspace file its objects."""
    models = file.models
    entries: list[FileEntry] = []
    totals: Counter[str] = Counter()
    saved_on = set()
    for key, entry in file.entries.items():
        head = key.partition(SEPARATOR)[0]
        own = 0 if entry.same_as is not None else entry.nbytes
        totals[head] += own
        if head not in models:
            entries.append(FileEntry(key, entry.shape, dtype_name(entry.dtype), own))
        if entry.device is not None:
            saved_on.add(entry.device)
    objects = [FileEntry(shown(name), (), shown(item.type), totals[name]) for name, item in models.items()]
    return FileContents(
        path=file.path,
        form="workspace" if models else file.form,
        entries=tuple((objects + entries)[:LISTED]),
        bytes=file.size,
        count=len(file.entries),
        saved_on=", ".join(sorted(saved_on)) or None,
    )


def _answer(command: ListFile, file: TensorFile, contents: FileContents) -> Answer:
    dtypes = Counter(dtype_name(entry.dtype) for entry in file.entries.values())
    tied = [entry for entry in file.entries.values() if entry.same_as is not None]
    nbytes = sum(entry.nbytes for entry in file.entries.values()) - sum(entry.nbytes for entry in tied)
    words = [f"{bytes_text(nbytes)} of values, which were not read."]
    form = file.title
    if contents.form == "workspace" and file.document is not None:
        form = "safetensors, a workspace"
        sample = [item.name for item in file.document.objects if item.recipe]
        if sample:
            words.append(f"Loading it builds {list_text(sample)} again; a file never runs the code of any other model.")
    if tied:
        words.append(f"{tied[0].key} is the very same tensor as {tied[0].same_as}: it is in the file once.")
    words += file.notes
    load = Load(path=command.path, sent_from=command.sent_from)
    return Answer(
        title=f"{count_text(contents.count, 'tensor')} in the file",
        words=" ".join(words),
        facts=(
            Fact("file", f"{origin(command)}, {bytes_text(file.size)}"),
            Fact("format", form),
            Fact("dtypes", ", ".join(f"{count:,} {name}" for name, count in dtypes.most_common()) or "none"),
            Fact("saved on", contents.saved_on or "the file does not say"),
        ),
        code=with_origin(code.listed(as_known(command), file.form), command),
        offers=(Offer("Load all of it", load),) if 0 < len(contents.entries) <= MOST_TENSORS else (),
    )
