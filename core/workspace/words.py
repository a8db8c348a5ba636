"""Says in words what happened: reports and errors become `Answer` records. Pure functions, jobs thread.

The voice is that of a colleague: what happened, why, what to do; then the Python that does the same. Moves are in `move_words`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from devexplorer.core.errors import BadInput, DoesNotFit
from devexplorer.core.formats import bytes_text, count_text, number_text, seconds_text, shape_text
from devexplorer.core.records.messages import (
    AddVirtual,
    Answer,
    Backward,
    Combine,
    Command,
    Fact,
    Forward,
    Move,
    NewTensor,
    Offer,
)
from devexplorer.core.records.objects import ObjectSnapshot, Row
from devexplorer.core.workspace.move_words import moved
from devexplorer.core.workspace.names import expression, quoted, variable
from devexplorer.core.workspace.run import Operand, RunFailed
from devexplorer.core.workspace.workspace import Built, Combined, CombineFailed, Created, Edited, Ran

__all__ = ["built", "combined", "created", "edited", "moved", "ran", "refusal", "removed"]

VIRTUAL_SPEC = "2x Tesla T4"
"""What is offered where a second device is missing."""


def built(report: Built, snapshot: ObjectSnapshot, summary: str) -> Answer:
    """A new sample model."""
    tensors = [row for row in snapshot.rows if row.kind == "parameter" and row.tied_to is None]
    elements = sum(row.elements for row in tensors)
    waiting = sum(not row.initialised for row in tensors)
    hidden = [row for row in snapshot.rows if not row.registered and row.kind == "tensor"]
    words = f"{summary[:1].upper()}{summary[1:]}."
    if elements:
        words += f" {count_text(elements, 'parameter value')} in {count_text(len(tensors), 'tensor')}, "
        words += f"{_per_device(snapshot.bytes_by_device)}, built in {seconds_text(report.seconds)}."
    if waiting:
        words += (
            f" {count_text(waiting, 'parameter')} have no shape yet: the first forward finds it out and creates them."
        )
    if hidden:
        words += (
            f" {count_text(len(hidden), 'tensor')} in a plain list: parameters(), .to() and state_dict() do not see them. "
            "An nn.ModuleList would register them."
        )
    words += _ties(snapshot.rows)
    name = variable(report.name)
    dtype = f", torch.{report.dtype}" if report.dtype else ""
    move = "" if report.device == "cpu" and not dtype else f".to({quoted(report.device)}{dtype})"
    code = f"torch.manual_seed({report.seed})\n{name} = zoo.build({quoted(report.recipe)}, seed={report.seed}){move}"
    code = f"from devexplorer.core.workspace import zoo\n\n{code.partition(chr(10))[2]}"
    return Answer(title=f"{report.name} is on {report.device}", words=words, code=code, subject=report.name)


def _ties(rows: Sequence[Row]) -> str:
    tied = next((row for row in rows if row.tied_to is not None and row.kind == "parameter"), None)
    if tied is None:
        return ""
    return (
        f" {tied.tied_to} and {tied.path} are two names of one Parameter: it counts once, changing one changes both, and gradients of both "
        "uses add up in it."
    )


def created(report: Created, snapshot: ObjectSnapshot, command: NewTensor) -> Answer:
    """A new tensor."""
    row = snapshot.rows[0]
    words = f"{row.type} of {shape_text(row.shape)} {row.dtype}, {bytes_text(row.bytes)} on {report.device}, nothing on any other device."
    if report.fell_back:
        words = f"{_sentence(report.fell_back)} {words}"
    facts = [
        Fact("elements", f"{row.elements:,}"),
        Fact("storage", f"{row.storage:#x}" if row.storage else "no memory"),
    ]
    if snapshot.values:
        facts.append(Fact("values", snapshot.values))
    title = f"{report.name} is on {report.device}"
    return Answer(
        title=title, words=words, facts=tuple(facts), code=_creation(report, row, command), subject=report.name
    )


def _creation(report: Created, row: Row, command: NewTensor) -> str:
    options = f", dtype=torch.{row.dtype}, device={quoted(report.device)}"
    if command.requires_grad:
        options += ", requires_grad=True"
    name = variable(report.name)
    if command.fill == "text":
        return f"{name} = torch.tensor({command.text.strip()}{options})"
    if command.fill == "file":
        load = f"torch.from_numpy(np.load({quoted(command.text)}, allow_pickle=False))"
        return f"{name} = {load}.to(dtype=torch.{row.dtype}, device={quoted(report.device)})"
    if command.fill == "arange":
        return f"{name} = torch.arange({row.elements}{options})"
    seed = f"torch.manual_seed({command.seed})\n" if command.fill in ("rand", "randn") else ""
    return f"{seed}{name} = torch.{command.fill}({row.shape}{options})"


def removed(gone: Sequence[str], freed: dict[str, int]) -> Answer:
    """Objects that are gone; `freed` are bytes per device that named objects held before and hold no more."""
    verb = "are" if len(gone) > 1 else "is"
    there = _per_device(freed)
    words = (
        f"The name was the last thing that held it; {there} free again." if len(gone) == 1 else f"{there} free again."
    )
    return Answer(
        title=f"{' and '.join(gone)} {verb} removed", words=words, code="\n".join(f"del {variable(n)}" for n in gone)
    )


def ran(report: Ran, snapshot: ObjectSnapshot, *, backward: bool, appeared: Sequence[Row] = ()) -> Answer:
    """A forward or backward that worked; `appeared` are lazy parameters that have a shape now."""
    clock = " (simulated)" if report.simulated else ""
    call = f"{expression(report.target)}({', '.join(map(variable, report.given)) or 'x'})"
    words = ""
    if report.output is not None:
        words = f"The output is {operand_text(report.output)}, {seconds_text(report.seconds)}{clock}."
    if not report.given:
        words += f" The input was a sample, {' and '.join(operand_text(one) for one in report.inputs)}."
    if appeared:
        words += f" {count_text(len(appeared), 'parameter')} got a shape by it, for example {appeared[0].path}: {shape_text(appeared[0].shape)}."
    if backward:
        words += f" backward() of the output's sum left a gradient in {count_text(report.gradients, 'parameter')}."
        if report.accumulated:
            words += " There were gradients before: the new ones were added to them. zero_grad() starts afresh."
        words += _ties(snapshot.rows)
    elif report.kept_as is not None:
        words += f" It is kept as {report.kept_as}, detached: without its graph, so that it holds no activations."
    facts = [Fact(one.label, operand_text(one)) for one in report.inputs]
    if report.output is not None:
        facts.append(Fact("output", operand_text(report.output)))
    if report.grad_fn is not None:
        facts.append(Fact("grad_fn of the output", report.grad_fn))
    if report.simulated:
        facts.append(
            Fact(
                "time",
                f"{seconds_text(report.seconds)} simulated, {seconds_text(report.wall_seconds)} on the CPU that stood in",
            )
        )
    code = (
        f"{call}.sum().backward()"
        if backward
        else f"{variable(report.kept_as)} = {call}.detach()"
        if report.kept_as
        else f"y = {call}"
    )
    title = f"{report.target} ran {'forward and backward' if backward else 'forward'}"
    return Answer(
        title=title, words=words.strip(), facts=tuple(facts), code=code, subject=report.target.partition(":")[0]
    )


def edited(report: Edited) -> Answer:
    """One element that was set."""
    name, _, path = report.target.partition(":")
    place = f"{path or name}[{', '.join(map(str, report.at))}]"
    words = f"It was {number_text(report.before, 6)}."
    if report.also:
        words += f" {' and '.join(report.also)} {'is' if len(report.also) == 1 else 'are'} the very same Parameter and changed with it."
    where = ", ".join(map(str, report.at)) or "..."
    thing = f"{variable(name)}.get_parameter({quoted(path)})" if path else variable(name)
    code = f"with torch.no_grad():\n    {thing}[{where}] = {report.after!r}"
    return Answer(title=f"{place} is now {number_text(report.after, 6)}", words=words, code=code, subject=name)


def combined(report: Combined) -> Answer:
    """The result of an operator."""
    line = f"{variable(report.left)} {report.operator} {variable(report.right)}"
    words = f"{line} is {operand_text(report.result)}: the result is where its operands are."
    return Answer(
        title=f"{report.name} is on {report.result.device}",
        words=words,
        code=f"{variable(report.name)} = {line}",
        subject=report.name,
    )


def refusal(error: Exception, command: Command | None = None) -> Answer:
    """Why a command was refused, or failed and changed nothing, and the ways out that take one click."""
    findings = error.findings if isinstance(error, BadInput) and len(error.findings) > 1 else ()
    words = (
        f"{len(findings)} things are not right:\n" + "\n".join(f"• {one}" for one in findings)
        if findings
        else _sentence(str(error))
    )
    facts: tuple[Fact, ...] = ()
    offers: list[Offer] = []
    code = ""
    title = _refused_title(command)
    if isinstance(error, DoesNotFit):
        facts = (
            Fact("needed", bytes_text(error.needed_bytes)),
            Fact(f"free on {error.device}", bytes_text(error.free_bytes)),
        )
    if isinstance(error, RunFailed):
        title, words, facts, offers, code = _run_failed(error, command)
    if isinstance(error, CombineFailed):
        title, words, facts, offers, code = _combine_failed(error, command)
    if isinstance(error, BadInput) and error.virtual_helps:
        words += " A machine without that GPU can stand in for it: virtual GPUs have its memory, its speed and its rules, and are simulated."
        offers.append(Offer(f"Add virtual GPUs ({VIRTUAL_SPEC})", AddVirtual(spec=VIRTUAL_SPEC)))
        if isinstance(command, NewTensor) and not command.fall_back:
            offers.append(Offer("Create it on the CPU", _on_cpu(command)))
    return Answer(
        title=title, words=words, facts=facts, code=code, failed=True, offers=tuple(offers), subject=_subject(command)
    )


Parts = tuple[str, str, tuple[Fact, ...], list[Offer], str]
"""Title, words, facts, offers and code of an answer."""


def _run_failed(error: RunFailed, command: Command | None) -> Parts:
    frame = error.frame
    target = command.target if isinstance(command, (Forward, Backward)) else ""
    model = target.partition(":")[0]
    facts = tuple(Fact(one.label, operand_text(one)) for one in error.operands)
    if frame is None:
        return f"{target} did not run", _sentence(str(error)), facts, [], ""
    layer = f"'{frame.path}'" if frame.path else "the model itself"
    kind = type(frame.module).__name__
    if frame.path:
        facts = (Fact("layer", f"{frame.path} ({kind})"), *facts)
    if error.reason == "container":
        return (
            f"An {kind} holds layers, it does not run them",
            f"{layer[:1].upper()}{layer[1:]} is an {kind}: it registers its layers, so that .to() and parameters() find them, but it has no "
            "forward, because it does not know in which order to run them. Loop over it in the forward of your own module, or use "
            "nn.Sequential when they simply run one after the other.",
            facts,
            [],
            f"for layer in {expression(f'{model}:{frame.path}' if frame.path else model)}:\n    x = layer(x)",
        )
    if error.reason == "memory":
        return f"{target} ran out of memory", _sentence(str(error)), facts, [], ""
    if error.reason == "devices":
        return _mixed_run(error, command, layer, kind, facts)
    shapes = ", ".join(shape_text(one.shape) for one in frame.operands)
    words = (
        f"It stopped in {layer} ({kind})"
        + (f", which was given {shapes}" if shapes else "")
        + f". {_sentence(str(error))}"
    )
    return f"{target} did not run", words, facts, [], ""


def _mixed_run(error: RunFailed, command: Command | None, layer: str, kind: str, facts: tuple[Fact, ...]) -> Parts:
    assert error.frame is not None
    target = command.target if isinstance(command, (Forward, Backward)) else ""
    model = target.partition(":")[0]
    inputs = error.frame.operands
    own = [one for one in error.operands if one not in inputs]
    said = " and ".join(f"{one.label} is on {one.device}" for one in _one_per_device(error.operands))
    words = (
        f"It stopped in {layer} ({kind}): {said}. PyTorch computes on one device at a time and moves nothing by itself."
    )
    offers: list[Offer] = []
    code = ""
    given = getattr(command, "input", None)
    home = own[0].device if own else None
    if given is not None and home is not None and any(one.device != home for one in inputs):
        names = tuple(part.strip() for part in given.split(","))
        offers.append(Offer(f"Move {' and '.join(names)} to {home}", Move(targets=names, device=home)))
        if inputs and len({one.device for one in inputs}) == 1:
            offers.append(Offer(f"Move {model} to {inputs[0].device}", Move(targets=(model,), device=inputs[0].device)))
        code = "\n".join(f"{variable(name)} = {variable(name)}.to({quoted(home)})" for name in names)
        words += f" Move the input to {home} first."
    elif any("not registered" in one.label for one in own):
        words += (
            " What is not registered does not follow .to(): hold layers in an nn.ModuleList and tensors in a buffer."
        )
    elif model and inputs:
        device = inputs[0].device
        offers.append(Offer(f"Move all of {model} to {device}", Move(targets=(model,), device=device)))
        words += " Its parts are on different devices: move them together, or move the activations where they meet."
    return f"{target}: tensors on different devices", words, facts, offers, code


def _one_per_device(operands: Sequence[Operand]) -> list[Operand]:
    return list({one.device: one for one in reversed(operands)}.values())[::-1]


def _combine_failed(error: CombineFailed, command: Command | None) -> Parts:
    left, right = error.left, error.right
    facts = (Fact(left.label, operand_text(left)), Fact(right.label, operand_text(right)))
    symbol = command.operator if isinstance(command, Combine) else "+"
    title = f"{left.label} {symbol} {right.label} does not work"
    if not error.mixed:
        return title, _sentence(str(error)), facts, [], ""
    words = (
        f"{left.label} is on {left.device} and {right.label} is on {right.device}. PyTorch computes on one device at a time and copies "
        "nothing by itself: copy one over, then it works."
    )
    offers = [
        Offer(f"Copy {right.label} to {left.device}", Move(targets=(right.label,), device=left.device, copy=True)),
        Offer(f"Copy {left.label} to {right.device}", Move(targets=(left.label,), device=right.device, copy=True)),
    ]
    x, y = variable(left.label), variable(right.label)
    return title, words, facts, offers, f"{x} {symbol} {y}.to({quoted(left.device)})"


def _on_cpu(command: NewTensor) -> NewTensor:
    return msgspec.structs.replace(command, device="cpu", request=0)


def _subject(command: Command | None) -> str | None:
    if isinstance(command, Move) and len(command.targets) == 1:
        return command.targets[0].partition(":")[0]
    target = getattr(command, "target", None)
    return target.partition(":")[0] if isinstance(target, str) else None


def _refused_title(command: Command | None) -> str:
    if isinstance(command, Move):
        things = command.targets[0] if len(command.targets) == 1 else f"{len(command.targets)} objects"
        return f"{things} {'was' if len(command.targets) == 1 else 'were'} not moved"
    titles = {
        "BuildModel": "No model was built",
        "NewTensor": "No tensor was created",
        "Undo": "Nothing was undone",
        "Remove": "Nothing was removed",
        "Forward": "The model did not run",
        "Backward": "The model did not run",
        "EditElement": "Nothing was changed",
        "Combine": "There is no result",
    }
    return titles.get(type(command).__name__, "That did not work")


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "?", "!")) else ".")


def _per_device(totals: dict[str, int]) -> str:
    return ", ".join(f"{bytes_text(size)} on {device}" for device, size in totals.items() if size) or bytes_text(0)


def operand_text(one: Operand) -> str:
    """`2×20 float32 on cpu`."""
    return f"{shape_text(one.shape)} {one.dtype} on {one.device}"
