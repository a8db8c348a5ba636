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
from devexplorer.core.records import Answer, Fact, Move, ObjectSnapshot, Offer
from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.virtual.torch_api.lazy import move_uninitialised
from devexplorer.core.workspace import CommandResult, CreateChange, Workspace, check_sizes

MOST_TENSORS = 1000
"""Objects that one command makes of a file: more would be of no use."""


@dataclass
class ChosenEntries:
    """What of a file is loaded, and as what."""

    models: list[SavedObject] = field(default_factory=list)
    """Sample models, to be built again."""
    tensors: list[TensorEntry] = field(default_factory=list)
    """Everything else, a tensor each."""
    waiting: list[str] = field(default_factory=list)
    """Models of the workspace that have the keys of a model in the file, which is not loaded but offered."""
    values_only: list[SavedObject] = field(default_factory=list)
    """Models of which the tensors are loaded, because only the user's code could build them."""


@dataclass
class Loaded:
    """What one `Load` has made."""

    bound: dict[str, TensorEntry] = field(default_factory=dict)
    """Name of a new tensor -> what it is in the file."""
    models: dict[str, SavedObject] = field(default_factory=dict)
    """Name of a new model -> what it is in the file."""


def load(workspace: Workspace, command: Load, progress: ProgressMonitor) -> CommandResult:
    """Load what was chosen, all or nothing."""
    device = workspace.registry.choose(command.device)
    known = as_known(command)
    with opened(known.path, command.path) as file:
        chosen = choose(workspace, file, command.entries)
        sizes = _sizes(file, chosen)
        alone = len(chosen.tensors) + len(chosen.models) == 1
        if command.name is not None:  # with several it is the beginning of their names
            python_names.checked_name(command.name, workspace.names if alone else ())
        check_sizes(sizes, device, workspace.registry, "what is to be loaded")
        tick = Ticker(progress, sum(sizes), f"reading {shown(known.path)}", "nothing was loaded")
        loaded = Loaded()
        taken = list(workspace.names)

        def new_name(key: str, prefix: str | None) -> str:
            own = command.name.strip() if command.name and alone else name_for(key, prefix, known.path, taken)
            taken.append(own)
            return own

        made: dict[str, tuple[nn.Module | Tensor, Extras]] = {}
        for item in chosen.models:
            name = new_name(item.name, None)
            extras = Extras(recipe=item.recipe, source=item.recipe, inputs=item.inputs[:200], seed=item.seed)
            made[name], loaded.models[name] = (_rebuilt(item, file, device, tick), extras), item
        read: dict[str, Tensor] = {}
        for entry in chosen.tensors:
            kept = entry.same_as or entry.key
            if kept not in read:
                read[kept] = _read(file, entry, device, tick)
            name = new_name(entry.key if entry.place else stem_of(known.path), command.name)
            made[name], loaded.bound[name] = (read[kept], Extras()), entry
        if not made and not chosen.waiting:
            raise BadInput(f"'{file.path}' has no values that could become an object")
        if not made:
            return CommandResult(_only_offers(command, chosen))
        workspace.add_all(made)
        workspace.changed(_undo_title(known, made), CreateChange(*made))
        snapshots = workspace.snapshots(made)
        usable = workspace.registry.usable()
        return CommandResult(_loaded_answer(command, device, file, chosen, loaded, snapshots, usable), snapshots)


def choose(workspace: Workspace, file: TensorFile, keys: Sequence[str]) -> ChosenEntries:
    """What is asked for; `BadInput` for what is not in the file."""
    if not file.entries and not (file.document and file.document.objects):
        raise BadInput(f"there are no tensors in '{file.path}'")
    models = file.models
    known = dict.fromkeys((*models, *file.entries))
    wrong = [
        f"there is no '{shown(key)}' in the file; {python_names.suggestion(key, known)}"
        for key in keys
        if key not in known
    ]
    if wrong:
        raise BadInput(*wrong)
    chosen = ChosenEntries()
    everything = [*models, *(key for key in file.entries if key.partition(SEPARATOR)[0] not in models)]
    for key in dict.fromkeys(keys or everything):
        if key in models:
            _choose_model(workspace, file, models[key], chosen)
        else:
            chosen.tensors.append(file.entries[key])
    return chosen


def _choose_model(workspace: Workspace, file: TensorFile, item: SavedObject, chosen: ChosenEntries) -> None:
    below = file.below(item.name)
    there = workspace.get(item.name) if item.name in workspace.names else None
    if _fits(item, below):
        chosen.models.append(item)
    elif isinstance(there, nn.Module) and set(state_of(there)) == set(below):
        chosen.waiting.append(item.name)
    else:
        chosen.values_only.append(item)
        chosen.tensors += below.values()


def _sizes(file: TensorFile, chosen: ChosenEntries) -> list[int]:
    """Bytes of each new tensor."""
    count = len(chosen.tensors) + len(chosen.models)
    if count > MOST_TENSORS:
        raise BadInput(
            f"'{file.path}' holds {count:,} objects, and at most {MOST_TENSORS:,} become objects at once; choose some"
            " of them, or make the model and load the file into it as a checkpoint"
        )
    below = [entry for item in chosen.models for entry in file.below(item.name).values()]
    wanted = {entry.key for entry in (*chosen.tensors, *below)}
    return [entry.nbytes for entry in (*chosen.tensors, *below) if entry.same_as not in wanted]


def _read(file: TensorFile, entry: TensorEntry, device: str, tick: Ticker) -> Tensor:
    tensor = torch.empty(entry.shape, dtype=entry.dtype, device=device)
    file.fill(entry, tensor, tick)
    objects = () if file.document is None else file.document.objects
    flagged = any(item.name == entry.key and item.kind == "tensor" and item.requires_grad for item in objects)
    return tensor.requires_grad_((entry.requires_grad or flagged) and _may_require_gradient(entry))


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
    whole = f"{prefix}.{own}" if prefix else own
    if not _clean(whole) or _clean(whole) != whole:
        whole = f"{prefix or stem_of(path)}.{own}" if own else stem_of(path)
    limit = python_names.LENGTH_LIMIT - 6  # room for the number that makes it unique
    if len(whole) > limit:
        whole = _clean(whole[-limit:]) or "tensor"
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
            wanted = key not in item.frozen and _may_require_gradient(entry)
            new[id(tensor)] = nn.Parameter(made, wanted) if isinstance(tensor, nn.Parameter) else made
        setattr(part, name, new[id(tensor)])  # a module's own __setattr__ does more: an LSTM lists its weights
    for part in model.modules():
        for name in part._non_persistent_buffers_set:
            buffer = part._buffers[name]
            part._buffers[name] = None if buffer is None else buffer.to(device)
    model.train(item.training)
    parts = dict(model.named_modules())
    for path in item.other_modes:
        if path in parts:
            parts[path].training = not item.training
    return model


# --- what is said about it


_NAMED = 3
"""Objects with another name that an answer names."""


def _loaded_answer(
    command: Load,
    device: str,
    file: TensorFile,
    chosen: ChosenEntries,
    made: Loaded,
    snapshots: Sequence[ObjectSnapshot],
    usable: Collection[str],
) -> Answer:
    """What was loaded."""
    names = [*made.models, *made.bound]
    sent = command.sent_from
    source = sent.machine if sent is not None and sent.objects else ""
    title = f"{names[0]} is on {device}" if len(names) == 1 else f"{count_text(len(names), 'object')} are loaded"
    if source:
        title = f"{objects_text(names)} {'was' if len(names) == 1 else 'were'} copied from {source}"
    words = _new_names(file, made) if source else []
    for name, entry in list(made.bound.items())[:1]:
        others = f", and {count_text(len(made.bound) - 1, 'other tensor')}" if len(made.bound) > 1 else ""
        words.append(f"{name} is {shape_text(entry.shape)} {dtype_name(entry.dtype)}{others}.")
    for name, item in made.models.items():
        whose = f"on {source}" if source else "of the file"
        words.append(f"{name} was built again as the sample model {item.recipe}, with the values {whose}.")
    words += _copied_words(file, device, made, source) if source else _device_words(file, device, made)
    words += _tie_words(made)
    words += file.notes
    words += _values_only(chosen)
    nbytes = sum(
        size
        for snapshot in snapshots
        if snapshot.name not in tied_names(made)
        for size in snapshot.bytes_by_device.values()
    )
    saved_on = _saved_on(file, made)
    facts = (
        Fact("copied from", source) if source else Fact("file", origin(command)),
        Fact("copied" if source else "loaded", f"{count_text(len(names), 'object')}, {bytes_text(nbytes)} on {device}"),
        Fact(f"device on {source}" if source else "saved on", ", ".join(saved_on) or "the file does not say"),
    )
    back = [item for item in saved_on if item != device and item in usable]
    offers = (
        [Offer(f"Move to {back[0]}, where it was", Move(targets=tuple(names), device=back[0]))]
        if len(saved_on) == 1 and back and not source
        else []
    )
    offers += _checkpoint_offers(command, chosen)
    return Answer(
        title=title,
        words=" ".join(words),
        facts=facts,
        code=with_origin(_code(as_known(command), device, file, made), sent),
        offers=tuple(offers),
        subject=names[0] if len(names) == 1 else None,
    )


def _only_offers(command: Load, chosen: ChosenEntries) -> Answer:
    """Nothing was made: everything asked for waits for a model that is there."""
    names = " and ".join(chosen.waiting)
    return Answer(
        title="Nothing new was loaded",
        words=(
            f"The file has the values of {names}, which {'is' if len(chosen.waiting) == 1 else 'are'} in the workspace"
            " with the same keys. A file never builds a model by running code, but its values can be loaded"
            " into the one that is there."
        ),
        offers=tuple(_checkpoint_offers(command, chosen)),
        code=f"# {variable(chosen.waiting[0])} is there already",
        subject=chosen.waiting[0],
    )


def _undo_title(command: Load, made: Collection[str]) -> str:
    """What Undo would take back."""
    sent = command.sent_from
    if sent is not None and sent.objects:
        return f"the copy of {objects_text(list(made))} from {sent.machine}"
    return f"the loading of {shown(command.path)}"


def _new_names(file: TensorFile, made: Loaded) -> list[str]:
    """Objects that are called otherwise than on the other machine, where that name was taken."""
    called = [(name, item.name) for name, item in made.models.items()]
    called += [(name, entry.key) for name, entry in made.bound.items() if len(entry.place) == 1]
    return [
        f"It is called {name} here, because there was {shown(before)} already."
        if len(made.models) + len(made.bound) == 1
        else f"{shown(before)} is called {name} here, because that name was taken."
        for name, before in called
        if name != before
    ][:_NAMED]


def _copied_words(file: TensorFile, device: str, made: Loaded, source: str) -> list[str]:
    saved = _saved_on(file, made)
    there = f"On {source} the values are on {' and '.join(saved)}, here" if saved else "Here the values are"
    return [f"{there} on {device}; a later change on one machine does not reach the other."]


def _device_words(file: TensorFile, device: str, made: Loaded) -> list[str]:
    saved = _saved_on(file, made)
    if file.form == "npy":
        moved = "" if device == "cpu" else f" and moved to {device}"
        return [f"A NumPy file records no device: it was read on the CPU{moved}."]
    location = quoted(device)
    where = f"It was saved on {' and '.join(saved)}" if saved else "The file does not say where it was saved"
    if file.form == "pt" and saved == [device]:
        return [f"{where} and is on {device} again; map_location={location} would have put it there from anywhere."]
    if file.form == "pt":
        return [
            f"{where}, and map_location={location} put it on {device} instead.",
            "Without map_location torch.load uses the device recorded in the file, and fails where there is none of"
            " that name.",
        ]
    if saved == [device]:
        return [f"{where} and is on {device} again."]
    if file.form != "safetensors":
        return [f"{where}; it is on {device} now."]
    if device == "cpu" or device.startswith(KIND):
        return [f"{where}; it is on {device} now, as requested: a file stores values, not devices."]
    return [
        f"{where}; load_file(…, device={location}) put it on {device}, which is what map_location is for torch.load."
    ]


def _saved_on(file: TensorFile, made: Loaded) -> list[str]:
    entries = [
        *made.bound.values(),
        *(entry for item in made.models.values() for entry in file.below(item.name).values()),
    ]
    return sorted({entry.device for entry in entries if entry.device is not None})


def _tie_words(made: Loaded) -> list[str]:
    tied = tied_names(made)
    if not tied:
        return []
    name, first = next(iter(tied.items()))
    return [
        f"{first} and {name} are two names of one tensor, as they were when they were saved: changing one changes both."
    ]


def tied_names(made: Loaded) -> dict[str, str]:
    """New name -> the earlier one that means the very same tensor."""
    first: dict[str, str] = {}
    tied = {}
    for name, entry in made.bound.items():
        same = first.setdefault(entry.same_as or entry.key, name)
        if same != name:
            tied[name] = same
    return tied


def _values_only(chosen: ChosenEntries) -> list[str]:
    words = []
    if chosen.values_only:
        names = " and ".join(shown(item.name) for item in chosen.values_only)
        source = next((item.source for item in chosen.values_only if item.source), None)
        again = f" ({shown(source)})" if source else ""
        words.append(
            f"Of {names} only the tensors were loaded: the model itself would be built by code, which a file never"
            f" runs. Open the model again{again}, then load this file into it."
        )
    if chosen.waiting:
        words.append(
            f"The values of {' and '.join(chosen.waiting)} were left in the file: the model of that name is there to"
            " take them."
        )
    return words


def _checkpoint_offers(command: Load, chosen: ChosenEntries) -> list[Offer]:
    return [
        Offer(f"Load into {name}", LoadCheckpoint(target=name, path=command.path, sent_from=command.sent_from))
        for name in chosen.waiting[:3]
    ]


def _code(command: Load, device: str, file: TensorFile, made: Loaded) -> str:
    tied = tied_names(made)
    plain = plain_prefix(command.sent_from, file)
    bound = []
    for name, entry in made.bound.items():
        place = [str(entry.place[0]).removeprefix(plain), *entry.place[1:]] if entry.place else ()
        bound.append((name, variable(tied[name]) if name in tied else code.index(place)))
    if not made.models:
        return code.loaded(command.path, file.form, device, bound)
    lines = code.loaded(command.path, file.form, "cpu", [])
    lines = lines.replace("\n\n", "\nfrom devexplorer import samples\n\n", 1)
    made_lines = []
    for name, item in made.models.items():
        saved = "" if plain else f"{item.name}{SEPARATOR}"
        made_lines += _model_code(variable(name), saved, item.recipe or "", item.seed, device)
        dtypes = {entry.dtype for entry in file.below(item.name).values() if entry.dtype.is_floating_point}
        if len(dtypes) == 1 and (dtype := dtype_name(next(iter(dtypes)))) != "float32":
            made_lines.insert(-2, f"{variable(name)}.to(torch.{dtype})")
            lines = f"import torch\n{lines}" if "import torch\n" not in lines else lines
        if item.frozen:
            made_lines += [
                f"for _path in {list(item.frozen)!r}:",
                f"    {variable(name)}.get_parameter(_path).requires_grad_(False)",
            ]
        if not item.training:
            made_lines.append(f"{variable(name)}.eval()")
    return "\n".join([lines, *made_lines, *code.assignments(bound, code.to(device))])


def _model_code(name: str, prefix: str, recipe: str, seed: int, device: str) -> list[str]:
    begin = quoted(prefix)
    state = [
        f"{code.STATE} = {{key.removeprefix({begin}): value for key, value in {code.TENSORS}.items() if"
        f" key.startswith({begin})}}"
    ]
    return [
        f"{name} = samples.build({quoted(recipe)}, seed={seed})",
        *(state if prefix else ()),
        f"{name}.load_state_dict({code.STATE if prefix else code.TENSORS}, strict=False)"
        "  # a tied key is in the file once",
        f"{name}.to({quoted(device)})",
    ]


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
    for key, entry in file.entries.items():
        head = key.partition(SEPARATOR)[0]
        own = 0 if entry.same_as is not None else entry.nbytes
        if head in models:
            totals[head] += own
        else:
            entries.append(FileEntry(key, entry.shape, dtype_name(entry.dtype), own))
    entries = [FileEntry(shown(name), (), shown(item.type), totals[name]) for name, item in models.items()] + entries
    saved_on = sorted({entry.device for entry in file.entries.values() if entry.device is not None})
    return FileContents(
        path=file.path,
        form="workspace" if models else file.form,
        entries=tuple(entries[:LISTED]),
        bytes=file.size,
        count=len(file.entries),
        saved_on=", ".join(saved_on) or None,
    )


def _answer(command: ListFile, file: TensorFile, contents: FileContents) -> Answer:
    dtypes = Counter(dtype_name(entry.dtype) for entry in file.entries.values())
    nbytes = sum(entry.nbytes for entry in file.entries.values() if entry.same_as is None)
    tied = [entry for entry in file.entries.values() if entry.same_as is not None]
    words = [f"{count_text(contents.count, 'tensor')} with {bytes_text(nbytes)} of values; none of them were read."]
    if contents.form == "workspace" and file.document is not None:
        sample = [item.name for item in file.document.objects if item.recipe]
        words.append(f"It is a workspace of {count_text(len(file.document.objects), 'object')}.")
        if sample:
            words.append(f"Loading it builds {', '.join(sample)} again; a file never runs the code of any other model.")
    if tied:
        words.append(f"{tied[0].key} is the very same tensor as {tied[0].same_as}: it is in the file once.")
    if contents.saved_on:
        words.append(f"When it was saved it was on {contents.saved_on}; it can be loaded to any device.")
    words += file.notes
    facts = (
        Fact("file", f"{origin(command)}, {bytes_text(file.size)}"),
        Fact(
            "format",
            "safetensors, a workspace" if contents.form == "workspace" else file.title,
        ),
        Fact("dtypes", ", ".join(f"{count:,} {name}" for name, count in dtypes.most_common()) or "none"),
        Fact("saved on", contents.saved_on or "the file does not say"),
    )
    load = Load(path=command.path, sent_from=command.sent_from)
    offers = (Offer("Load all of it", load),) if 0 < len(contents.entries) <= MOST_TENSORS else ()
    return Answer(
        title=f"{count_text(contents.count, 'tensor')} in the file",
        words=" ".join(words),
        facts=facts,
        code=with_origin(code.listed(as_known(command), file.form), command.sent_from),
        offers=offers,
    )
