"""Carries out `CompareCheckpoint` and `LoadCheckpoint`: a file beside a model, and its values into the model. Jobs
thread.

Values go to where their tensors are, one tensor after the other in pieces, so the file may be larger than the memory
that is free. The values that were there are kept in host memory until then: for Undo, and for taking everything
back when reading fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace
from torch import Tensor, nn

from devexplorer.core.base import (
    NO_PROGRESS,
    BadInput,
    ProgressMonitor,
    bytes_text,
    count_text,
    expression,
    first_line,
    list_text,
    object_name,
    quoted,
    shape_text,
)
from devexplorer.core.files import code
from devexplorer.core.files.entries import TensorEntry, TensorFile, Ticker, shown, some_keys
from devexplorer.core.files.keys import state_of
from devexplorer.core.files.manifest import SEPARATOR
from devexplorer.core.files.opening import as_known, opened, origin, plain_prefix, with_origin
from devexplorer.core.files.records import (
    CheckpointCompared,
    CheckpointComparison,
    CompareCheckpoint,
    KeyMismatch,
    LoadCheckpoint,
)
from devexplorer.core.models import device_id, dtype_name, is_uninitialised
from devexplorer.core.records import Answer, Fact, Offer
from devexplorer.core.workspace import CommandResult, Refused, Target, Workspace, check_sizes
from devexplorer.core.workspace.changes import ObjectMemento


def compare(workspace: Workspace, command: CompareCheckpoint, progress: ProgressMonitor) -> CommandResult:
    """Say what the checkpoint would do."""
    target, model = _model(workspace, command.target)
    with opened(command.path) as file:
        match = best_match(model, target.name, file, command.strip)
        event = CheckpointCompared(comparison=match.comparison(command))
        return CommandResult(_compared(command, file, match), events=(event,))


def load_checkpoint(workspace: Workspace, command: LoadCheckpoint, progress: ProgressMonitor) -> CommandResult:
    """Load what matches; all or nothing."""
    target, model = _model(workspace, command.target)
    known = as_known(command)
    with opened(known.path, command.path) as file:
        match = best_match(model, target.name, file, command.strip)
        if not match.pairs or not (match.strict or command.partial):
            raise _refused(command, file, match)
        # a tied tensor once, with the values that come last
        wanted = {id(tensor): (tensor, entry) for _, tensor, entry in match.pairs}
        lazy: dict[str, list[int]] = {}
        for key, tensor, _ in match.pairs:
            if tensor.is_meta:
                raise BadInput(f"'{key}' of '{command.target}' has no values to be replaced: it is on the device meta")
        for tensor, entry in wanted.values():
            if is_uninitialised(tensor):  # it becomes as large as the file says
                elements = entry.nbytes // entry.dtype.itemsize
                lazy.setdefault(device_id(tensor.device), []).append(elements * tensor.dtype.itemsize)
        for device, needed in lazy.items():
            check_sizes(needed, device, workspace.registry, "what the lazy parameters become")
        image = workspace.image(target.name, values=True, within=target.path)
        undoable = image is not None
        if image is not None:  # from here on the transaction reverts it when something fails
            workspace.changed(f"the loading of {shown(known.path)} into {command.target}", image)
        else:
            image = _image_beyond_the_budget(workspace, target)
        if image is None:  # no room for the old values: it cannot be cancelled, and all of the file must be readable
            progress = NO_PROGRESS
            for _, entry in wanted.values():
                for _ in file.pieces(entry):
                    pass
        tick = Ticker(progress, match.nbytes, f"reading {shown(known.path)}", "the model is unchanged")
        try:
            for tensor, entry in wanted.values():
                if is_uninitialised(tensor):
                    # as load_state_dict does with lazy parameters
                    tensor.materialize(entry.shape)  # type: ignore[attr-defined]
                file.fill(entry, tensor, tick)
        except BaseException as error:
            if image is None:
                workspace.publish(target.name)
                if isinstance(error, Exception):
                    raise BadInput(
                        f"{first_line(error)}; '{target.name}' has some of the new values now: the old ones were too"
                        " large to keep"
                    ) from error
            elif not undoable:
                image.undo(workspace, NO_PROGRESS)
            raise
        if not undoable:
            workspace.history.cannot_undo()
        workspace.publish(target.name)
        answer = _loaded(command, file, match, sum(map(len, lazy.values())))
    return CommandResult(answer, workspace.snapshots((target.name, *workspace.sharing([target.name]))))


def _image_beyond_the_budget(workspace: Workspace, target: Target) -> ObjectMemento | None:
    """The old values, for the case that reading fails; None where the host has no room for them."""
    image = ObjectMemento(target.name, workspace.get(target.name), workspace.extras(target.name), target.path)
    free = workspace.registry.backend("cpu").free_bytes("cpu")
    if free is None or image.needed_bytes(values=True) >= free // 2:
        return None
    image.take(values=True)
    return image


def _model(workspace: Workspace, title: str) -> tuple[Target, nn.Module]:
    target = workspace.target(title)
    if not isinstance(target.thing, nn.Module):
        raise BadInput(f"'{title}' is a tensor; a checkpoint goes into a model, and Load makes tensors of a file")
    return target, target.thing


# --- messages


def _compared(command: CompareCheckpoint, file: TensorFile, match: Match) -> Answer:
    """What loading would do."""
    load = LoadCheckpoint(target=command.target, path=command.path, strip=command.strip)
    title = f"The checkpoint fits {command.target}"
    words = f"All {count_text(len(match.pairs), 'key')} of the model are in the file, with its shapes."
    offers = [Offer("Load it", load)]
    if not (match.strict and match.pairs):
        title = f"The checkpoint does not fit {command.target} as it is"
        words = f"{count_text(len(match.pairs), 'key')} would be loaded; {_what_is_wrong(match)}."
        offers = _ways(load, match)
    return Answer(
        title=title,
        words=" ".join([words, *_notes(file, match)]),
        facts=_facts(command.path, file, match),
        code=_compare_code(command, file, match),
        offers=tuple(offers),
        subject=object_name(command.target),
    )


def _loaded(command: LoadCheckpoint, file: TensorFile, match: Match, lazy: int) -> Answer:
    """What was loaded, and where to."""
    devices = sorted({device_id(tensor.device) for _, tensor, _ in match.pairs})
    words = [f"The values were read from the file, each to the device of its tensor: {list_text(devices)}."]
    saved = sorted({entry.device for _, _, entry in match.pairs if entry.device is not None})
    if saved:
        words.append(f"They were saved on {list_text(saved)}; tensors of a model stay where they are.")
    if lazy:
        words.append(f"{count_text(lazy, 'lazy parameter')} took the shape of the file.")
    what = "the values of the checkpoint"
    if not match.strict:
        what = "what fits of the checkpoint"
        words.append(f"Left out: {_what_is_wrong(match)}; those keep their values.")
    prefix = match.prefix.removeprefix(plain_prefix(command.sent_from, file))
    python = code.checkpoint(
        as_known(command), file.form, match.container.place, prefix, _absent(file, match), bool(match.mismatched)
    )
    return Answer(
        title=f"{command.target} has {what}",
        words=" ".join([*words, *_notes(file, match)]),
        facts=_facts(origin(command), file, match),
        code=with_origin(python, command),
        subject=object_name(command.target),
    )


def _refused(command: LoadCheckpoint, file: TensorFile, match: Match) -> Refused:
    """Why nothing was loaded, with the ways out."""
    known = as_known(command).path
    if match.pairs:
        line = f"'{known}' does not fit '{command.target}': {_what_is_wrong(match)}; nothing was loaded"
    else:
        line = f"no key of '{known}' is one of '{command.target}' with the same shape"
        if match.container.entries and match.missing:
            line += f": the file has {shown(next(iter(match.container.entries)))}, the model {shown(match.missing[0])}"
    offers = _ways(replace(command, request=0), match)
    return Refused("; ".join([line, *file.lacks]), facts=_facts(origin(command), file, match), offers=tuple(offers))


def _ways(command: LoadCheckpoint, match: Match) -> list[Offer]:
    offers = []
    if match.suggested is not None:
        offers.append(Offer(f"Strip {match.suggested}", replace(command, strip=match.suggested)))
    if match.part is not None:
        joint = "." if ":" in command.target else ":"
        offers.append(Offer(f"Load into {match.part}", replace(command, target=f"{command.target}{joint}{match.part}")))
    if match.pairs:
        offers.append(Offer("Load what fits", replace(command, partial=True)))
    return offers


def _what_is_wrong(match: Match) -> str:
    parts = []
    for keys, what in ((match.missing, "missing in the file"), (match.unexpected, "unexpected: the model has none")):
        if keys:
            are = "is" if len(keys) == 1 else "are"
            parts.append(f"{count_text(len(keys), 'key')} ({some_keys(keys, 1)}) {are} {what}")
    if match.mismatched:
        item = match.mismatched[0]
        shapes = f"{shown(item.key)} is {shape_text(item.model)} in the model and {shape_text(item.file)} in the file"
        parts.append(f"{count_text(len(match.mismatched), 'key')} of another shape or kind ({shapes})")
    return ", ".join(parts) or "nothing is in the file"


def _notes(file: TensorFile, match: Match) -> list[str]:
    words = []
    if match.container.title:
        words.append(f"In the file, the part '{shown(match.container.title)}' is the one that fits.")
    if match.strip:
        words.append(f"'{shown(match.strip)}' was removed from the beginning of the file's keys.")
    elif match.suggested is not None:
        words.append(f"The file's keys begin with '{shown(match.suggested)}', those of the model do not.")
    if match.casts:
        words.append(f"{count_text(len(match.casts), 'tensor')} in another dtype than the model's, which is kept.")
    for key, kept in list(match.tied.items())[:1]:
        words.append(f"{key} is not in the file and need not be: it is the very same tensor as {kept}.")
    return [*words, *file.notes]


def _facts(path: str, file: TensorFile, match: Match) -> tuple[Fact, ...]:
    return (
        Fact("file", f"{path}, {bytes_text(file.size)}"),
        Fact("matching", f"{len(match.pairs):,}, {bytes_text(match.nbytes)}"),
        Fact("missing", f"{len(match.missing):,}"),
        Fact("unexpected", f"{len(match.unexpected):,}"),
        Fact("of another shape", f"{len(match.mismatched):,}"),
        Fact("cast", f"{len(match.casts):,}"),
    )


def _absent(file: TensorFile, match: Match) -> dict[str, str]:
    """Keys of the model that Python does not find in the file -> the key of the same tensor that it does."""
    absent = dict(match.tied)
    if file.form not in ("pt", "pickle"):  # a safetensors file names the ties of what it holds once
        keys = {entry.key: key for key, _, entry in match.pairs}
        absent |= {key: keys[entry.same_as] for key, _, entry in match.pairs if entry.same_as in keys}
    return absent


def _compare_code(command: CompareCheckpoint, file: TensorFile, match: Match) -> str:
    imports, whole = code.source(command.path, file.form, "cpu")
    state = f"{whole}{code.index(match.container.place)}"
    keys = f"{{key.removeprefix({quoted(match.prefix)}) for key in {state}}}"
    return (
        f"{imports}\n\n{code.STATE}, {code.OWN} = {keys}, set({expression(command.target)}.state_dict())\n"
        f'print("missing:", sorted({code.OWN} - {code.STATE}))\nprint("unexpected:", sorted({code.STATE} - {code.OWN}))'
    )


# --- a checkpoint beside a model: which key is which tensor, and what does not fit


NAMED = 1000
"""Keys of each kind that are named."""
COUNTER = "num_batches_tracked"
"""Batch norm's; files from before it was counted do not have it, and PyTorch does without."""


class Container(NamedTuple):
    """A part of the file that could be a state dict."""

    place: tuple[Any, ...]
    """How Python gets at it."""
    prefix: str
    """What its keys begin with in the file."""
    entries: Mapping[str, TensorEntry]

    @property
    def title(self) -> str:
        """What it is called in words; empty: the whole file."""
        return "/".join(map(str, self.place)) or self.prefix.removesuffix(SEPARATOR)


class Match(NamedTuple):
    """The best container for a model."""

    container: Container
    strip: str
    pairs: Sequence[tuple[str, Tensor, TensorEntry]]
    """What would be loaded, in the order of the state dict."""
    missing: Sequence[str]
    unexpected: Sequence[str]
    mismatched: Sequence[KeyMismatch]
    tied: Mapping[str, str]
    """Key that is not in the file -> key of the same tensor that is."""
    suggested: str | None
    part: str | None
    """A part of the model that the file would fit better."""

    @property
    def strict(self) -> bool:
        """Whether everything is there and nothing else."""
        return not (self.missing or self.unexpected or self.mismatched)

    @property
    def nbytes(self) -> int:
        """What would be read."""
        return sum(entry.nbytes for entry in {id(tensor): entry for _, tensor, entry in self.pairs}.values())

    @property
    def prefix(self) -> str:
        """What Python takes away from the keys; of a workspace file also the name of the object."""
        return self.container.prefix + self.strip

    @property
    def casts(self) -> list[str]:
        """Keys whose dtype would change, with both dtypes."""
        casts = []
        for key, tensor, entry in self.pairs:
            if entry.dtype != tensor.dtype:
                casts.append(f"{key}: {dtype_name(entry.dtype)} → {dtype_name(tensor.dtype)}")
        return casts

    def comparison(self, command: CompareCheckpoint) -> CheckpointComparison:
        """The record of it."""
        return CheckpointComparison(
            target=command.target,
            path=command.path,
            strip=self.strip,
            matching=len(self.pairs),
            missing=tuple(self.missing[:NAMED]),
            unexpected=tuple(self.unexpected[:NAMED]),
            mismatched=tuple(self.mismatched[:NAMED]),
            casts=tuple(self.casts[:NAMED]),
            missing_count=len(self.missing),
            unexpected_count=len(self.unexpected),
            mismatched_count=len(self.mismatched),
            suggested_strip=self.suggested,
            bytes=self.nbytes,
        )


def best_match(model: nn.Module, name: str, file: TensorFile, strip: str) -> Match:
    """Find the part of the file that fits a model best, with this prefix removed from its keys."""
    state = state_of(model)
    best = Container((), "", {})
    score = (-1, False)
    for container in containers(file):
        found = hits(container.entries, state, strip)
        if not strip:
            found = max(found, hits(container.entries, state, suggestion(container.entries, state)))
        if (found, container.title == name) > score:
            best, score = container, (found, container.title == name)
    return _matched(state, best, strip)


def containers(file: TensorFile) -> list[Container]:
    """The whole file, and each of its dicts and lists that holds tensors; of a workspace file each of its objects."""
    found: dict[tuple[tuple[Any, ...], str], dict[str, TensorEntry]] = {}
    document = file.document
    for key, entry in file.entries.items():
        if file.form in ("pt", "pickle"):
            if entry.place:
                found.setdefault((entry.place[:-1], ""), {})[str(entry.place[-1])] = entry
            continue
        found.setdefault(((), ""), {})[key] = entry
        if document is not None and document.single is None and SEPARATOR in key:
            head, _, below = key.partition(SEPARATOR)
            found.setdefault(((), f"{head}{SEPARATOR}"), {})[below] = entry
    return [Container(place, prefix, entries) for (place, prefix), entries in found.items()]


def hits(entries: Mapping[str, TensorEntry], state: Mapping[str, Tensor], strip: str) -> int:
    """Keys that the model has too."""
    return sum(key.removeprefix(strip) in state for key in entries)


def suggestion(longer: Mapping[str, object], shorter: Mapping[str, object]) -> str:
    """The prefix that most keys have before a key of the other side; empty: there is none."""
    prefixes: Counter[str] = Counter()
    for key in longer:
        for index, letter in enumerate(key):
            if letter in "./" and key[index + 1 :] in shorter:
                prefixes[key[: index + 1]] += 1
    for prefix, _ in prefixes.most_common(1):
        return prefix
    return ""


def _matched(state: Mapping[str, Tensor], container: Container, strip: str) -> Match:
    entries = {key.removeprefix(strip): entry for key, entry in container.entries.items()}
    by_tensor = {id(tensor): key for key, tensor in state.items() if key in entries}
    uncounted = not any(key.endswith(COUNTER) for key in entries)
    pairs, missing, mismatched, tied = [], [], [], {}
    for key, tensor in state.items():
        entry = entries.get(key)
        if entry is None:
            if id(tensor) in by_tensor:
                tied[key] = by_tensor[id(tensor)]
            elif not (uncounted and key.endswith(COUNTER)):
                missing.append(key)
        elif not is_uninitialised(tensor) and (
            entry.shape != tuple(tensor.shape) or entry.dtype.is_complex > tensor.is_complex()
        ):
            mismatched.append(KeyMismatch(key, tuple(tensor.shape), entry.shape))
        else:
            pairs.append((key, tensor, entry))
    unexpected = [key for key in entries if key not in state]
    here = hits(container.entries, state, strip)
    suggested: str | None = suggestion(container.entries, state)
    if hits(container.entries, state, suggested or "") <= here:
        suggested = None
    part: str | None = None
    if missing and suggested is None:
        part = suggestion(state, entries)  # the file of a backbone, for a model around it
        if not part or sum(f"{part}{key}" in state for key in entries) < len(entries) or len(entries) <= here:
            part = None
    if part is not None:
        part = part.removesuffix(".")
    return Match(container, strip, pairs, missing, unexpected, mismatched, tied, suggested, part)
