"""Says what a `Load` did: where things were saved, where they are, and what was not opened. Pure, jobs thread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from devexplorer.core.base import bytes_text, count_text, objects_text, quoted, shape_text, variable
from devexplorer.core.files import code
from devexplorer.core.files.entries import TensorFile, shown
from devexplorer.core.files.manifest import SEPARATOR
from devexplorer.core.files.sent import as_known, origin, plain_prefix, with_origin
from devexplorer.core.models import dtype_name
from devexplorer.core.records import Answer, Fact, Load, LoadCheckpoint, Move, ObjectSnapshot, Offer
from devexplorer.core.virtual.device.accounting import KIND

if TYPE_CHECKING:
    from devexplorer.core.files.load import Chosen, Loaded

_NAMED = 3
"""Objects with another name that an answer names."""


def loaded(
    command: Load,
    device: str,
    file: TensorFile,
    chosen: Chosen,
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


def only_offers(command: Load, chosen: Chosen) -> Answer:
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


def undo_title(command: Load, made: Collection[str]) -> str:
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


def _values_only(chosen: Chosen) -> list[str]:
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


def _checkpoint_offers(command: Load, chosen: Chosen) -> list[Offer]:
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
