"""Says what a checkpoint would do to a model, what it did, and why it was refused. Pure, jobs thread."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from devexplorer.core.base.formats import bytes_text, count_text, shape_text
from devexplorer.core.base.python_names import expression, quoted
from devexplorer.core.files import code
from devexplorer.core.files.entries import shown
from devexplorer.core.files.matching import Match
from devexplorer.core.files.opening import AnyFile
from devexplorer.core.records.laboratory import CompareCheckpoint, LoadCheckpoint
from devexplorer.core.records.messages import Answer, Fact, Offer
from devexplorer.core.workspace.command_result import Refused


def compared(command: CompareCheckpoint, file: AnyFile, found: Match) -> Answer:
    """What loading would do."""
    load = LoadCheckpoint(target=command.target, path=command.path, strip=command.strip)
    if found.strict and found.pairs:
        title = f"The checkpoint fits {command.target}"
        words = f"All {count_text(len(found.pairs), 'key')} of the model are in the file, with its shapes."
        offers = [Offer("Load it", load)]
    else:
        title = f"The checkpoint does not fit {command.target} as it is"
        words = f"{count_text(len(found.pairs), 'key')} would be loaded; {_what_is_wrong(found)}."
        offers = _ways(load, found)
    return Answer(
        title=title,
        words=" ".join([words, *_notes(file, found)]),
        facts=_facts(command.path, file, found),
        code=_compare_code(command, file, found),
        offers=tuple(offers),
        subject=command.target.partition(":")[0],
    )


def loaded(command: LoadCheckpoint, file: AnyFile, found: Match, devices: Sequence[str], lazy: int) -> Answer:
    """What was loaded, and where to."""
    values = f"{bytes_text(found.nbytes)} of values for {count_text(len(found.pairs), 'key')} of {command.target}"
    words = [f"{values} were read from the file, each to the device of its tensor: {' and '.join(devices)}."]
    saved = sorted({entry.device for _, _, entry in found.pairs if entry.device is not None})
    if saved:
        words.append(
            f"They were saved on {' and '.join(saved)}; here values are copied into the tensors"
            " that exist, wherever those are."
        )
    if lazy:
        words.append(f"{count_text(lazy, 'lazy parameter')} took the shape of the file.")
    if not found.strict:
        words.append(f"Left out: {_what_is_wrong(found)}; those keep their values.")
    return Answer(
        title=(
            f"{command.target} has the values of the checkpoint"
            if found.strict
            else f"{command.target} has what fits of the checkpoint"
        ),
        words=" ".join([*words, *_notes(file, found)]),
        facts=_facts(command.path, file, found),
        code=code.checkpoint(
            command, file.form, found.container.place, _prefix(found), _absent(file, found), bool(found.mismatched)
        ),
        subject=command.target.partition(":")[0],
    )


def refused(command: LoadCheckpoint, file: AnyFile, found: Match) -> Refused:
    """Why nothing was loaded, with the ways out."""
    if not found.pairs:
        line = f"no key of '{command.path}' is one of '{command.target}' with the same shape"
        if found.container.entries and found.missing:
            line += f": the file has {shown(next(iter(found.container.entries)))}, the model {shown(found.missing[0])}"
    else:
        line = f"'{command.path}' does not fit '{command.target}': {_what_is_wrong(found)}; nothing was loaded"
    return Refused(line, facts=_facts(command.path, file, found), offers=tuple(_ways(command, found)))


def _ways(command: LoadCheckpoint, found: Match) -> list[Offer]:
    offers = []
    command = msgspec.structs.replace(command, request=0)
    if found.suggested is not None:
        offers.append(Offer(f"Strip {found.suggested}", msgspec.structs.replace(command, strip=found.suggested)))
    if found.part is not None:
        joint = "." if ":" in command.target else ":"
        offers.append(
            Offer(
                f"Load into {found.part}",
                msgspec.structs.replace(command, target=f"{command.target}{joint}{found.part}"),
            )
        )
    if found.pairs:
        offers.append(Offer("Load what fits", msgspec.structs.replace(command, partial=True)))
    return offers


def _what_is_wrong(found: Match) -> str:
    parts = []
    if found.missing:
        parts.append(f"{_keys(len(found.missing), found.missing)} missing in the file")
    if found.unexpected:
        parts.append(
            f"{_keys(len(found.unexpected), found.unexpected)} unexpected, because the model has none of that name"
        )
    if found.mismatched:
        item = found.mismatched[0]
        shapes = f"{shown(item.key)} is {shape_text(item.model)} in the model and {shape_text(item.file)} in the file"
        is_are = "has" if len(found.mismatched) == 1 else "have"
        parts.append(f"{count_text(len(found.mismatched), 'key')} {is_are} another shape or kind ({shapes})")
    return ", ".join(parts) or "nothing is in the file"


def _keys(count: int, keys: Sequence[str]) -> str:
    return f"{count_text(count, 'key')} ({shown(keys[0])}{', …' if count > 1 else ''}) {'is' if count == 1 else 'are'}"


def _notes(file: AnyFile, found: Match) -> list[str]:
    words = []
    if found.container.title:
        words.append(
            f"The file holds more than a state dict; the part '{shown(found.container.title)}' is the one that fits."
        )
    if found.strip:
        words.append(f"'{shown(found.strip)}' was taken away from the beginning of the file's keys.")
    elif found.suggested is not None:
        why = " DataParallel puts that there." if found.suggested == "module." else ""
        words.append(f"The file's keys begin with '{shown(found.suggested)}', those of the model do not.{why}")
    if found.casts:
        words.append(
            f"{count_text(len(found.casts), 'tensor')} would change dtype, the model's is kept:"
            f" {shown(found.casts[0])}."
        )
    if found.tied:
        key, kept = next(iter(found.tied.items()))
        words.append(f"{key} is not in the file and need not be: it is the very same tensor as {kept}.")
    return [*words, *file.notes]


def _facts(path: str, file: AnyFile, found: Match) -> tuple[Fact, ...]:
    return (
        Fact("file", f"{path}, {bytes_text(file.size)}"),
        Fact("matching", f"{len(found.pairs):,}, {bytes_text(found.nbytes)}"),
        Fact("missing", f"{len(found.missing):,}"),
        Fact("unexpected", f"{len(found.unexpected):,}"),
        Fact("of another shape", f"{len(found.mismatched):,}"),
        Fact("cast", f"{len(found.casts):,}"),
    )


def _absent(file: AnyFile, found: Match) -> dict[str, str]:
    """Keys of the model that Python does not find in the file -> the key of the same tensor that it does."""
    absent = dict(found.tied)
    if file.form != "pt":  # a safetensors file names the ties of what it holds once
        keys = {entry.key: key for key, _, entry in found.pairs}
        absent |= {key: keys[entry.same_as] for key, _, entry in found.pairs if entry.same_as in keys}
    return absent


def _prefix(found: Match) -> str:
    """What Python takes away from the keys; of a workspace file also the name of the object."""
    return found.container.prefix + found.strip


def _compare_code(command: CompareCheckpoint, file: AnyFile, found: Match) -> str:
    imports, whole = code.source(command.path, file.form, "cpu")
    prefix = _prefix(found)
    state = f"{whole}{code.index(found.container.place)}"
    keys = f"{{key.removeprefix({quoted(prefix)}) for key in {state}}}" if prefix else f"set({state})"
    return (
        f"{imports}\n\n{code.STATE}, {code.OWN} = {keys}, set({expression(command.target)}.state_dict())\n"
        f'print("missing:", sorted({code.OWN} - {code.STATE}))\nprint("unexpected:", sorted({code.STATE} - {code.OWN}))'
    )
