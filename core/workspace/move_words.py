"""What a move did, in words and in Python: `MoveReport` becomes an `Answer`. Pure functions; no torch, any thread."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.formats import bytes_text, count_text, number_text, seconds_text
from devexplorer.core.records.messages import Answer, Fact
from devexplorer.core.records.objects import MoveReport, ObjectSnapshot, Row
from devexplorer.core.workspace.names import expression, quoted, variable


def moved(
    report: MoveReport, before: Sequence[ObjectSnapshot], after: Sequence[ObjectSnapshot], *, undoes: bool = False
) -> Answer:
    """A move, a copy or an undo that worked. The snapshots are those of the objects before and after it, in the report's order."""
    subject = after[0].name if len(after) == 1 else None
    if report.already_there and not report.copied:
        return _already_there(report, after, subject)
    where = report.destination
    title = _title(report, undoes)
    sentences = [_amount(report)]
    if undoes:
        sentences.append("Everything is where it was before.")
    elif report.copied:
        sentences.append(_copied(report))
    else:
        kinds = {snap.kind for snap in after}
        if "model" in kinds:
            sentences.append(_model_sentence(report, [s for s in after if s.kind == "model"]))
        if "tensor" in kinds:
            sentences += _tensor_sentences(before, after, where)
    sentences += _cautions(report, undoes)
    return Answer(
        title=title,
        words=" ".join(sentence for sentence in sentences if sentence),
        facts=_move_facts(report, before, after),
        code="" if undoes else move_code(report, [snap.kind for snap in before]),
        subject=report.created[0] if len(report.created) == 1 and report.copied else subject,
    )


def _title(report: MoveReport, undoes: bool) -> str:
    things = " and ".join(report.objects) if len(report.objects) <= 3 else f"{len(report.objects)} objects"
    verb = "are" if len(report.objects) > 1 else "is"
    if report.copied and undoes:
        return f"{' and '.join(report.created)} {'are' if len(report.created) > 1 else 'is'} gone again"
    if report.copied:
        return f"{' and '.join(report.created)} {'are' if len(report.created) > 1 else 'is'} on {report.destination}"
    if report.uninitialised and not (report.parameters or report.buffers or report.tensors):
        return f"{things} will be on {report.destination}"
    return f"{things} {verb} {'back' if undoes else 'now'} on {report.destination}"


def _amount(report: MoveReport) -> str:
    """`4 parameters, 31.04 KiB in 0.4 ms.`"""
    counted = (
        (report.parameters, "parameter"),
        (report.buffers, "buffer"),
        (report.gradients, "gradient"),
        (report.tensors, "tensor"),
    )
    parts = [count_text(count, noun) for count, noun in counted if count]
    if not parts:
        return ""
    clock = " (simulated)" if report.simulated else ""
    return f"{', '.join(parts)}, {bytes_text(report.bytes)} in {seconds_text(report.seconds)}{clock}."


def _model_sentence(report: MoveReport, models: Sequence[ObjectSnapshot]) -> str:
    ties = [row for snap in models for row in snap.rows if row.tied_to is not None and row.kind == "parameter"]
    words = ""
    if report.parameters or report.buffers:
        one = len(models) == 1
        words = "The model is the same object" if one else "The models are the same objects"
        words += f"; {'its' if one else 'their'} parameters were moved in place"
        if report.buffers:
            words += ", buffers were replaced by new tensors"
        words += f", and {'its' if one else 'their'} class is unchanged."
    if ties:
        row = ties[0]
        words += f" {row.path} and {row.tied_to} are two names of one Parameter: it was moved once, counts once, and is still shared."
    if report.uninitialised:
        words += (
            f" {count_text(report.uninitialised, 'parameter')} without a shape: there is nothing to copy yet, "
            f"they will be created on {report.destination} by the first forward."
        )
    return words.strip()


def _tensor_sentences(before: Sequence[ObjectSnapshot], after: Sequence[ObjectSnapshot], where: str) -> list[str]:
    sentences = []
    for old, new in zip(before, after, strict=True):
        if new.kind != "tensor" or old.rows[0].identity == new.rows[0].identity:
            continue
        name = variable(new.name)
        source = old.rows[0].devices[0]
        sentences.append(
            f"{name}.to({quoted(where)}) made a new tensor and left the old one on {source} as it was; because the name {name} now means "
            "the new one, nobody holds the old one any more and its memory is free."
            if not old.rows[0].requires_grad
            else f"{name} requires a gradient, so the result is no leaf: its grad_fn is {new.rows[0].grad_fn}, and the original on {source} "
            "lives on in the graph, where its gradient will arrive. To train the moved values, move first and call requires_grad_() then."
        )
    return sentences


def _copied(report: MoveReport) -> str:
    pairs = [
        f"{new} is a second object, {old} is where it was"
        for old, new in zip(report.objects, report.created, strict=False)
    ]
    return f"{'; '.join(pairs)}. Changing one does not change the other."


def _cautions(report: MoveReport, undoes: bool) -> list[str]:
    words = []
    if report.lossy and not undoes:
        words.append(
            f"{report.dtype} cannot hold every value exactly. "
            + (
                f"The originals are kept for undo, {bytes_text(report.kept_for_undo_bytes)} in all."
                if report.kept_for_undo_bytes
                else "The originals were too large for the undo budget, so this cannot be undone."
            )
        )
    if report.left_behind:
        names = ", ".join(path.partition(":")[2] for path in report.left_behind[:3])
        more = f" and {len(report.left_behind) - 3} more" if len(report.left_behind) > 3 else ""
        words.append(
            f"Left behind: {names}{more}. They are held in a plain list or attribute, which .to() does not see; "
            "hold layers in an nn.ModuleList and tensors in a buffer."
        )
    return words


def _already_there(report: MoveReport, after: Sequence[ObjectSnapshot], subject: str | None) -> Answer:
    things = " and ".join(report.objects)
    where = report.destination
    if len(after) == 1 and not after[0].tensors_by_device:
        words = "No parameters and no buffers are registered in it, so there is nothing that .to() could move."
        words = " ".join([words, *_cautions(report, False)])
        title = f"{things} has nothing to move"
    else:
        verb, same = ("is", "the same object") if len(report.objects) == 1 else ("are", "the same objects")
        title = f"{things} {verb} on {where} already"
        words = f".to({quoted(where)}) gives {same} back: nothing was copied and no memory was taken."
        words = " ".join([words, *_cautions(report, False)])
    return Answer(
        title=title,
        words=words,
        facts=(Fact("same object", "yes: `is` gives True"), Fact("copied", bytes_text(0))),
        code="\n".join(f"{expression(o)}.to({quoted(where)}) is {expression(o)}  # True" for o in report.objects),
        subject=subject,
    )


def _move_facts(
    report: MoveReport, before: Sequence[ObjectSnapshot], after: Sequence[ObjectSnapshot]
) -> tuple[Fact, ...]:
    facts = [
        Fact("from", ", ".join(report.source)),
        Fact("to", report.destination),
        Fact("copied", bytes_text(report.bytes)),
    ]
    simulated = " simulated" if report.simulated else ""
    if report.gb_per_s is not None:
        facts.append(Fact("rate", f"{number_text(report.gb_per_s)} GB/s{simulated}"))
    if report.simulated:
        facts.append(
            Fact(
                "time",
                f"{seconds_text(report.seconds)} simulated, {seconds_text(report.wall_seconds)} on the CPU that stood in",
            )
        )
    facts.append(Fact("before", _per_device(report.before)))
    facts.append(Fact("after", _per_device(report.after)))
    if len(before) == len(after) == 1 and not report.copied:
        old, new = before[0].rows[0], after[0].rows[0]
        same = old.identity == new.identity
        facts.append(Fact("same object", "yes: `is` gives True" if same else "no: `is` gives False"))
        if new.kind == "tensor":
            facts.append(Fact("storage", f"{_address(old)} → {_address(new)}"))
        else:
            facts.append(Fact("type", f"{new.type}, as before"))
    return tuple(facts)


def _per_device(totals: dict[str, int]) -> str:
    return ", ".join(f"{device} {bytes_text(size)}" for device, size in totals.items() if size) or bytes_text(0)


def _address(row: Row) -> str:
    device = row.devices[0] if row.devices else ""
    return f"{row.storage:#x} on {device}" if row.storage else f"no memory on {device}"


def move_code(report: MoveReport, kinds: Sequence[str]) -> str:
    """The Python that does the same move."""
    where = quoted(report.destination) + (f", torch.{report.dtype}" if report.dtype else "")
    lines = []
    for index, (title, kind) in enumerate(zip(report.objects, kinds, strict=False)):
        thing = expression(title)
        if report.copied:
            new = variable(report.created[index])
            if kind == "tensor":
                lines.append(f"{new} = {thing}.to({where}, copy=True)")
            else:
                lines.append(f"{new} = copy.deepcopy({thing}).to({where})")
        elif kind == "tensor":
            lines.append(f"{thing} = {thing}.to({where})")
        else:
            lines.append(f"{thing}.to({where})")
    if report.copied and "model" in kinds:
        lines.insert(0, "import copy")
    return "\n".join(lines)
