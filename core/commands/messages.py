"""Turns reports of the workspace into `Answer` records: what happened, why, and what to do next; then the Python that
does the same. Pure functions, jobs thread."""

from __future__ import annotations

import cmath
import os
from collections.abc import Collection, Mapping, Sequence

from devexplorer.core.base import (
    MOVE_LAZILY_IMPORT,
    bytes_text,
    count_text,
    expression,
    list_text,
    number_text,
    object_name,
    quoted,
    seconds_text,
    sentence,
    shape_text,
    variable,
)
from devexplorer.core.commands.refusals import operand_text
from devexplorer.core.models import Operand
from devexplorer.core.models.class_source import missing_words
from devexplorer.core.models.samples import Recipe
from devexplorer.core.records import (
    Answer,
    BuildModel,
    CastError,
    Check,
    Combine,
    Fact,
    MoveReport,
    NewTensor,
    ObjectSnapshot,
    Offer,
    Row,
)
from devexplorer.core.workspace import Target, runs
from devexplorer.core.workspace.runs import Ran

SAME_MODEL = (
    "A model stays the same object: .to() changes its parameters in place and replaces its buffers by new tensors."
)


def moved(
    report: MoveReport, before: Sequence[ObjectSnapshot], after: Sequence[ObjectSnapshot], *, separated: str = ""
) -> Answer:
    """A move or a copy that worked; the snapshots are those of the named objects, before and after it, in one order.

    `separated` is the sentence of the function of that name, which may also look at objects that were not moved.
    """
    subject = after[0].name if len(after) == 1 else None
    kinds = {snap.name: snap.kind for snap in after}
    if report.already_there:
        return _already_there(report, after, subject)
    title = _title(report)
    if report.copied:
        sentences = ["The original stays where it was. Changing one does not change the other."]
        subject = report.created[0] if len(report.created) == 1 else None
    else:
        sentences = _tensor_sentences(report, before, after)
        if sentences and len(after) == 1 and report.kind == "move":
            title += ", as a new tensor"
        if report.parameters or report.buffers:
            sentences.append(SAME_MODEL)
        if report.uninitialised:
            words = f"{count_text(report.uninitialised, 'parameter')} without a shape will be created on"
            sentences.append(f"{words} {report.destination} by the first forward.")
    sentences += [separated, *_cautions(report)]
    with_gradients = {snap.name for snap in before if any(row.kind == "gradient" for row in snap.rows)}
    return Answer(
        title=title,
        words=" ".join(sentence for sentence in sentences if sentence),
        facts=_move_facts(report, before, after),
        code=move_code(report, kinds, with_gradients),
        subject=subject,
    )


def undone(report: MoveReport, after: Sequence[ObjectSnapshot]) -> Answer:
    """A move that was undone."""
    back = "in its old dtype again" if report.kind == "cast" else f"back on {report.destination}"
    return Answer(
        title=f"{_things_are(report.objects)} {back if len(report.objects) == 1 else back.replace('its', 'their')}",
        words="Everything is where it was before.",
        facts=_move_facts(report, (), after),
        subject=after[0].name if len(after) == 1 else None,
    )


def uncopied(gone: Sequence[str]) -> Answer:
    """A copy that was undone."""
    return Answer(
        title=f"{_things_are(gone)} gone again",
        words="The copy was removed; the original is where it was all along.",
    )


def taken_back(title: str, gone: Sequence[str]) -> Answer:
    """Any other change that was undone; `title` as in "the new tensor x"."""
    words = "The previous state is restored."
    if gone:
        words = f"{_things_are(gone)} gone; Redo makes {'them' if len(gone) > 1 else 'it'} again."
    return Answer(title=f"Undone: {title}", words=words)


def separated(before: Sequence[ObjectSnapshot], after: Sequence[ObjectSnapshot]) -> str:
    """One sentence when different tensors shared memory before a move and do not any more; the snapshots are in one
    order."""
    groups = _sharing_memory(before)
    if not groups:
        return ""
    now = {(snap.name, row.path): (row.devices, row.storage) for snap in after for row in snap.rows}
    apart = [list(same.values()) for same in groups.values() if len({now.get(place) for place in same.values()}) > 1]
    if not apart:
        return ""
    titles = [f"{name}:{path}" if path else name for name, path in apart[0]]
    listed = f"{', '.join(titles[:2])} and {len(titles) - 2} more" if len(titles) > 2 else " and ".join(titles)
    others = f" (and {count_text(len(apart) - 1, 'other group')} of tensors)" if len(apart) > 1 else ""
    return f"{listed}{others} shared memory; after the move they do not."


def _sharing_memory(snapshots: Sequence[ObjectSnapshot]) -> dict[tuple[str, int], dict[int, tuple[str, str]]]:
    """Storages that different tensors share: device and address -> identity of each tensor -> its first object and
    path.

    Two passes, because most models have 50,000 storages that are not shared.
    """
    seen: dict[int, int | None] = {}
    shared: set[int] = set()
    for snap in snapshots:
        for row in snap.rows:
            storage = row.storage
            if storage is not None and seen.setdefault(storage, row.identity) != row.identity:
                shared.add(storage)
    groups: dict[tuple[str, int], dict[int, tuple[str, str]]] = {}
    for snap in snapshots if shared else ():
        for row in snap.rows:
            if row.storage in shared and row.storage is not None and row.identity is not None:
                groups.setdefault((row.devices[0], row.storage), {}).setdefault(row.identity, (snap.name, row.path))
    return groups


def _things(titles: Sequence[str]) -> str:
    return list_text(titles) if len(titles) <= 3 else f"{len(titles)} objects"


def _things_are(titles: Sequence[str]) -> str:
    return f"{_things(titles)} {'are' if len(titles) > 1 else 'is'}"


def _title(report: MoveReport) -> str:
    titles = report.created if report.copied else report.objects
    if report.kind == "cast":
        return f"{_things_are(titles)} now {report.dtype}"
    if report.uninitialised and not (report.parameters or report.buffers or report.tensors):
        return f"{_things(titles)} will be on {report.destination}"
    return f"{_things_are(titles)} {'' if report.copied else 'now '}on {report.destination}"


def _counted(report: MoveReport) -> str:
    """`4 parameters, 2 buffers`; empty where there are no tensors."""
    counted = (
        (report.parameters, "parameter"),
        (report.buffers, "buffer"),
        (report.gradients, "gradient"),
        (report.tensors, "tensor"),
    )
    return ", ".join(count_text(count, noun) for count, noun in counted if count)


def _tensor_sentences(
    report: MoveReport, before: Sequence[ObjectSnapshot], after: Sequence[ObjectSnapshot]
) -> list[str]:
    sentences = []
    for old, new in zip(before, after, strict=True):
        if new.kind != "tensor" or old.rows[0].identity == new.rows[0].identity:
            continue
        name, source = variable(new.name), old.rows[0].devices[0]
        if old.rows[0].requires_grad:
            sentences.append(
                f"{name} requires a gradient, so the result is not a leaf tensor: its grad_fn is {new.rows[0].grad_fn},"
                f" and the gradient arrives at the original on {source}. To train the new values, {report.kind} first"
                " and call requires_grad_() then."
            )
            continue
        call = f"torch.{report.dtype}" if report.kind == "cast" else quoted(report.destination)
        kept = "is kept for undo" if report.lossy else "is freed when nothing else refers to it"
        sentences.append(
            f"{name}.to({call}) made a new tensor, and the name {name} now means that one; the old one on {source}"
            f" {kept}."
        )
    return sentences


def _became(losses: CastError, dtype: str | None) -> dict[str, int]:
    return {
        "became Inf" if "float" in (dtype or "float") else "out of range": losses.overflowed,
        "became 0": losses.underflowed,
        "became NaN": losses.nans,
    }


def _percent(share: float) -> str:
    return f"{number_text(100 * share, 2)} %"


def _loss_facts(report: MoveReport) -> list[Fact]:
    losses = report.losses
    if losses is None:
        return []
    facts = [Fact("values changed", f"{losses.changed:,} of {losses.elements:,}")]
    if losses.changed:
        worst = f", in {losses.worst}" if losses.worst else ""
        facts.append(Fact("largest change", f"{number_text(losses.largest_change)}{worst}"))
        share = number_text(100 * losses.largest_relative_change, 2)
        facts.append(Fact("largest relative change", f"{share} %"))
    return facts + [Fact(what, f"{count:,}") for what, count in _became(losses, report.dtype).items()]


def _cautions(report: MoveReport) -> list[str]:
    words = []
    if report.lossy and report.kept_for_undo_bytes:
        kept = bytes_text(report.kept_for_undo_bytes)
        words.append(f"{report.dtype} cannot hold every value exactly; the originals are kept for undo, {kept} in all.")
    elif report.lossy and not report.copied:
        words.append(
            f"{report.dtype} cannot hold every value exactly; the originals were too large for the undo budget, so this"
            " cannot be undone."
        )
    if report.left_behind:
        names = ", ".join(path.partition(":")[2] for path in report.left_behind[:3])
        more = f" and {len(report.left_behind) - 3} more" if len(report.left_behind) > 3 else ""
        words.append(
            f"Left behind: {names}{more}. They are held in a plain list or attribute, which .to() does not see; "
            "hold layers in an nn.ModuleList and tensors in a buffer."
        )
    return words


def _where(report: MoveReport) -> str:
    """What `.to` is given: the device, the dtype where that alone changes, or both."""
    if report.dtype is None:
        return quoted(report.destination)
    alone = report.kind == "cast" and not report.uninitialised  # `move_lazily` needs the device as well
    return f"torch.{report.dtype}" if alone else f"{quoted(report.destination)}, torch.{report.dtype}"


def _already_there(report: MoveReport, after: Sequence[ObjectSnapshot], subject: str | None) -> Answer:
    things, where = _things_are(report.objects), report.destination
    if len(after) == 1 and not after[0].tensors_by_device:
        words = "No parameters and no buffers are registered in it, so there is nothing that .to() could move."
        title = f"{_things(report.objects)} has nothing to move"
    else:
        title = f"{things} {f'{report.dtype} ' if report.dtype else ''}on {where} already"
        words = f".to({_where(report)}) gives the same object back: nothing was copied and no memory was taken."
    return Answer(
        title=title,
        words=" ".join([words, *_cautions(report)]),
        facts=(Fact("same object", "yes: “is” gives True"), Fact("copied", bytes_text(0))),
        code="\n".join(f"{expression(o)}.to({_where(report)}) is {expression(o)}  # True" for o in report.objects),
        subject=subject,
    )


def _move_facts(
    report: MoveReport, before: Sequence[ObjectSnapshot], after: Sequence[ObjectSnapshot]
) -> tuple[Fact, ...]:
    if report.kind == "cast":
        facts = [Fact("on", report.destination), *((Fact("dtype", report.dtype),) if report.dtype else ())]
    else:
        facts = [Fact("from", ", ".join(report.source)), Fact("to", report.destination)]
    if counted := _counted(report):
        facts.append(Fact("what", counted))
    facts.append(Fact("copied", bytes_text(report.bytes)))
    if report.simulated:
        facts.append(Fact("time", clocks_text(report.seconds, report.wall_seconds)))
    else:
        facts.append(Fact("time", seconds_text(report.seconds)))
    if report.gb_per_s is not None:
        facts.append(Fact("rate", f"{number_text(report.gb_per_s)} GB/s{' simulated' if report.simulated else ''}"))
    facts.append(Fact("before", _bytes_per_device(report.before)))
    facts.append(Fact("after", _bytes_per_device(report.after)))
    facts += _loss_facts(report)
    ties = [row for snap in after for row in snap.rows if row.tied_to is not None and row.kind == "parameter"]
    if ties and before:
        facts.append(Fact("tied", f"{ties[0].path} and {ties[0].tied_to} are one Parameter, and still shared"))
    if len(before) == len(after) == 1 and not report.copied:
        old, new = before[0].rows[0], after[0].rows[0]
        same = old.identity == new.identity
        facts.append(Fact("same object", "yes: “is” gives True" if same else "no: “is” gives False"))
        if new.kind == "tensor":
            facts.append(Fact("storage", f"{_address(old)} → {_address(new)}"))
        else:
            facts.append(Fact("type", f"{new.type}, as before"))
    return tuple(facts)


def clocks_text(seconds: float, wall_seconds: float) -> str:
    """Both clocks of a virtual GPU."""
    return f"{seconds_text(seconds)} simulated, {seconds_text(wall_seconds)} of real CPU time"


def _bytes_per_device(totals: dict[str, int]) -> str:
    return ", ".join(f"{device} {bytes_text(size)}" for device, size in totals.items() if size) or bytes_text(0)


def _address(row: Row) -> str:
    device = row.devices[0] if row.devices else ""
    return f"{row.storage:#x} on {device}" if row.storage else f"no memory on {device}"


def _model_to(report: MoveReport, thing: str, where: str) -> str:
    return f"move_lazily({thing}, {where})" if report.uninitialised and report.simulated else f"{thing}.to({where})"


def move_code(report: MoveReport, kinds: Mapping[str, str], with_gradients: Collection[str] = ()) -> str:
    """The Python that does the same; `kinds` says of each object whether it is a `model` or a `tensor`, copies get no
    gradients."""
    where = _where(report)
    lines = []
    for index, title in enumerate(report.objects):
        thing, is_tensor = expression(title), kinds[object_name(title)] == "tensor"
        if report.copied:
            new = variable(report.created[index])
            if is_tensor:
                lines.append(f"{new} = {thing}.to({where}, copy=True)")
            else:
                lines.append(f"{new} = {_model_to(report, f'copy.deepcopy({thing})', where)}")
            if not is_tensor and object_name(title) in with_gradients:
                lines.append(f"{new}.zero_grad()")
        else:
            lines.append(f"{thing} = {thing}.to({where})" if is_tensor else _model_to(report, thing, where))
    if any("copy.deepcopy" in line for line in lines):
        lines.insert(0, "import copy")
    if any("move_lazily" in line for line in lines):
        lines.insert(0, MOVE_LAZILY_IMPORT)
    return "\n".join(lines)


def built(
    command: BuildModel, recipe: Recipe, snapshot: ObjectSnapshot, device: str, dtype: str | None, seconds: float
) -> Answer:
    """A new sample model; `dtype`: None where it was not cast."""
    name = snapshot.name
    cast = f", torch.{dtype}" if dtype else ""
    made = f"samples.build({quoted(recipe.name)}, seed={command.seed})"
    code = "from devexplorer import samples\n\n"
    if device.startswith("vgpu") and any(not row.initialised for row in snapshot.rows):
        code = f"{MOVE_LAZILY_IMPORT}\n{code}{variable(name)} = move_lazily({made}, {quoted(device)}{cast})"
    else:
        moved = f".to({quoted(device)}{cast})" if cast or device != "cpu" else ""
        code += f"{variable(name)} = {made}{moved}"
    words = f"{recipe.summary[:1].upper()}{recipe.summary[1:]}.{contents(snapshot, seconds)}"
    return Answer(title=f"{name} is on {device}", words=words, code=code, subject=name)


def contents(snapshot: ObjectSnapshot, seconds: float) -> str:
    """What a model that was built in so many seconds consists of: sentences that follow one another, each with a space
    before it."""
    tensors = [row for row in snapshot.rows if row.kind == "parameter" and row.tied_to is None]
    elements = sum(row.elements for row in tensors)
    waiting = sum(not row.initialised for row in tensors)
    hidden = [row for row in snapshot.rows if not row.registered and row.kind == "tensor"]
    words = ""
    if elements:
        words += f" {count_text(elements, 'parameter value')} in {count_text(len(tensors), 'tensor')}, "
        words += f"{_per_device(snapshot.bytes_by_device)}, built in {seconds_text(seconds)}."
    if waiting:
        words += (
            f" {count_text(waiting, 'parameter')} have no shape yet: the first forward finds it out and creates them."
        )
    if hidden:
        words += (
            f" {count_text(len(hidden), 'tensor')} in a plain list or attribute, which parameters(), .to() and"
            " state_dict() do not see. Hold layers in an nn.ModuleList and tensors in a buffer."
        )
    return words + _ties(snapshot.rows)


def _ties(rows: Sequence[Row]) -> str:
    tied = next((row for row in rows if row.tied_to is not None and row.kind == "parameter"), None)
    if tied is None:
        return ""
    return (
        f" {tied.tied_to} and {tied.path} are two names of one Parameter: it counts once, changing one changes both,"
        " and gradients of both uses add up in it."
    )


def created(command: NewTensor, snapshot: ObjectSnapshot, device: str, fell_back: str | None) -> Answer:
    """A new tensor; `fell_back`: why it is on the CPU, when it was asked for elsewhere."""
    row = snapshot.rows[0]
    words = (
        f"{row.type} of {shape_text(row.shape)} {row.dtype}, {bytes_text(row.bytes)} on {device}, nothing on any other"
        " device."
    )
    if fell_back:
        words = f"{sentence(fell_back)} {words}"
    code = f"{variable(snapshot.name)} = {_creation(command, row, device)}"
    if command.fill == "file":
        code = f"import numpy as np\n\n{code}"
    title = f"{snapshot.name} is on {device}"
    return Answer(title=title, words=words, code=code, subject=snapshot.name)


def _creation(command: NewTensor, row: Row, device: str) -> str:
    """The expression that makes it."""
    dtype = f"dtype=torch.{row.dtype}"
    wants_gradient = ".requires_grad_()" if command.requires_grad else ""
    if command.fill in ("rand", "randn"):
        own = device if device.startswith("cuda") else "cpu"  # virtual GPUs have no generator
        generator = f"torch.Generator({quoted(own)}).manual_seed({command.seed})"
        there = "" if own == device else f".to({quoted(device)})"
        drawn = f"torch.{command.fill}({row.shape}, {dtype}, device={quoted(own)}, generator={generator})"
        return f"{drawn}{there}{wants_gradient}"
    options = f"{dtype}, device={quoted(device)}"
    if command.fill == "file":
        load = f"torch.from_numpy(np.load({quoted(os.path.expanduser(command.text))}, allow_pickle=False))"
        return f"{load}.to({options}){wants_gradient}"
    if command.requires_grad:
        options += ", requires_grad=True"
    values = {"text": command.text.strip(), "arange": row.elements}.get(command.fill, row.shape)
    function = "tensor" if command.fill == "text" else command.fill
    return f"torch.{function}({values}, {options})"


def removed(gone: Sequence[str], freed: dict[str, int], kept_bytes: int = 0) -> Answer:
    """Objects that are gone; `freed` are bytes per device that named objects held before and hold no more.

    `kept_bytes` stay in host memory for Undo, so only other devices get their memory back.
    """
    single = len(gone) == 1
    words = f"No other name refers to {'it' if single else 'them'}"
    if kept_bytes:
        freed = {device: size for device, size in freed.items() if device != "cpu"}
    if any(freed.values()) or not kept_bytes:
        words += f", so {'its' if single else 'their'} memory was freed: {_per_device(freed)}"
    words += "."
    if any(size for device, size in freed.items() if device not in ("cpu", "meta")):
        words += " PyTorch keeps it cached on the device for new tensors; “Release cache” gives it back."
    if kept_bytes:
        them = "it" if single else "them"
        words += f" {bytes_text(kept_bytes)} is kept in host memory so that Undo can restore {them}."
    return Answer(
        title=f"{' and '.join(gone)} {'is' if single else 'are'} removed",
        words=words,
        code="\n".join(f"del {variable(name)}" for name in gone),
    )


def ran(report: Ran, snapshot: ObjectSnapshot, *, backward: bool, appeared: Sequence[Row] = ()) -> Answer:
    """A forward or backward that worked; `appeared` are lazy parameters that have a shape now."""
    words = ""
    if report.output is not None:
        words = f"The output is {operand_text(report.output)}, {seconds_text(report.seconds, report.simulated)}."
    if not report.given:
        words += f" The input was a sample, {' and '.join(operand_text(item) for item in report.inputs)}."
    if appeared:
        words += (
            f" {count_text(len(appeared), 'parameter')} got a shape by it, for example {appeared[0].path}:"
            f" {shape_text(appeared[0].shape)}."
        )
    if backward:
        where = (
            f"a gradient in {count_text(report.gradients, 'parameter')}"
            if report.gradients
            else "no gradient in any registered parameter"
        )
        words += f" backward() of the output's sum left {where}."
        if report.reached:
            words += f" One arrived in {' and '.join(report.reached)} too."
        if report.accumulated:
            words += " There were gradients before: the new ones were added to them. zero_grad() clears them."
        words += missing_words(report.missing)
        words += _ties(snapshot.rows)
    elif report.kept_as is not None:
        words += f" It is kept as {report.kept_as}, detached: without its graph, so that it holds no activations."
    facts = [Fact(item.label, operand_text(item)) for item in report.inputs]
    if report.output is not None:
        facts.append(Fact("output", operand_text(report.output)))
    if report.grad_fn is not None:
        facts.append(Fact("grad_fn of the output", report.grad_fn))
    facts += [Fact("cut off from autograd", f"{cut.file}:{cut.line}: {cut.code}") for cut in report.missing.cuts]
    if report.simulated:
        facts.append(Fact("time", clocks_text(report.seconds, report.wall_seconds)))
    code = runs.backward(report, snapshot.source) if backward else runs.forward(report, snapshot.source)
    title = f"{report.target} ran {'forward and backward' if backward else 'forward'}"
    name, offers = object_name(report.target), []
    if report.missing.paths:
        device = next((device for device in snapshot.bytes_by_device if device != "cpu"), "cpu")
        offers.append(Offer(f"Check {name} on {device}", Check(target=name, device=device, train=True)))
    return Answer(title=title, words=words.strip(), facts=tuple(facts), code=code, subject=name, offers=tuple(offers))


def edited(target: Target, index: tuple[int, ...], before: float, after: float) -> Answer:
    """One element that was set."""
    position = ", ".join(map(str, index))
    words = f"It was {before:g}."
    words += target.changed_too
    value = repr(after) if cmath.isfinite(after) else f'{type(after).__name__}("{after}")'
    code = f"with torch.no_grad():\n    {target.code()}[{position or '...'}] = {value}"
    title = f"{target.path or target.name}[{position}] is now {after:g}"
    return Answer(title=title, words=words, code=code, subject=target.name)


def combined(name: str, command: Combine, result: Operand) -> Answer:
    """The result of an operator."""
    line = f"{variable(command.left)} {command.operator} {variable(command.right)}"
    words = f"{line} is {operand_text(result)}: the result is where its operands are."
    title = f"{name} is on {result.device}"
    return Answer(title=title, words=words, code=f"{variable(name)} = {line}", subject=name)


def _per_device(totals: dict[str, int]) -> str:
    return ", ".join(f"{bytes_text(size)} on {device}" for device, size in totals.items() if size) or bytes_text(0)
