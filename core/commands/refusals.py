"""Says why something was refused or went wrong, and offers the ways out that take one click. Pure functions, jobs
thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from devexplorer.core.base import (
    BadInput,
    Cancelled,
    DoesNotFit,
    bytes_text,
    expression,
    first_line,
    object_name,
    out_of_host_memory,
    quoted,
    sentence,
    shape_text,
    variable,
)
from devexplorer.core.commands.registry import refused_title, spec_of, target_device, title_of
from devexplorer.core.devices.accelerator import failed
from devexplorer.core.feature import named
from devexplorer.core.models import Dispatched, Operand, RunFailed
from devexplorer.core.records import (
    AddVirtual,
    Answer,
    Check,
    Combine,
    Command,
    Fact,
    Forward,
    Move,
    NewTensor,
    Offer,
    Steps,
)
from devexplorer.core.workspace import Refused, StepFailed
from devexplorer.core.workspace.tensors import CombineFailed

if TYPE_CHECKING:
    from devexplorer.core.workspace import Workspace

_COMBINES = {"+": "add", "-": "subtract", "*": "multiply", "@": "multiply"}
VIRTUAL_SPEC = "2x Tesla T4"
"""What is offered where a second device is missing."""


def refusal(error: Exception, command: Command | None = None) -> Answer:
    """Why a command was refused, or failed and changed nothing, and the ways out that take one click."""
    if isinstance(error, StepFailed):
        answer = refusal(error.error, error.command)
        before = f"The step before it ({', then '.join(map(title_of, error.before))}) was undone"
        if isinstance(command, Steps) and command.title:
            answer = msgspec.structs.replace(answer, title=refused_title(command))
            number, count = len(error.before) + 1, len(command.commands)
            before = f"It was step {number} of {count}; what came before it was undone"
        if not any(spec_of(step).undoable for step in error.before):
            return answer
        words = f"{answer.words} {before}: nothing has changed."
        return msgspec.structs.replace(answer, words=words, offers=())  # they are ways out of how it was then
    findings = error.findings if isinstance(error, BadInput) and len(error.findings) > 1 else ()
    words = (
        f"{len(findings)} things are not right:\n" + "\n".join(f"• {item}" for item in findings)
        if findings
        else sentence(str(error))
    )
    facts: tuple[Fact, ...] = ()
    offers: list[Offer] = []
    code = ""
    title = refused_title(command)
    if out_of_host_memory(error):
        words = (
            "This machine has no memory left for it, and nothing has changed. Remove objects, or close other programs."
        )
    if failed(error):
        words = sentence(first_line(error))  # the rest is about debugging kernels
    if isinstance(error, DoesNotFit) and error.needed_bytes:
        facts = (
            Fact("needed", bytes_text(error.needed_bytes)),
            Fact(f"free on {error.device}", bytes_text(error.free_bytes)),
        )
    if isinstance(error, RunFailed):
        title, words, facts, more, code = _run_failed(error, command)
        offers += more
    if isinstance(error, CombineFailed):
        title, words, facts, more, code = _combine_failed(error, command)
        offers += more
    if isinstance(error, Dispatched):
        offers += _ways_out(error, command)[1]
    if isinstance(error, Refused):
        facts = error.facts
        offers = [_and_again(offer.label, offer.command, command) for offer in error.offers]
    if isinstance(error, BadInput) and error.virtual_helps:
        words += (
            " A machine without that GPU can stand in for it: virtual GPUs have its memory, its speed and its rules,"
            " and are simulated."
        )
        virtual = AddVirtual(spec=VIRTUAL_SPEC)
        kind, _, index = ("" if command is None else target_device(command) or "").strip().lower().partition(":")
        if kind == "cuda" and index in ("", "0", "1"):
            device = f"vgpu:{index or 0}"
            instead: Any = command
            both = Steps(commands=(virtual, msgspec.structs.replace(instead, device=device, request=0)))
            offers.append(Offer(f"Add virtual GPUs and use {device}", both))
        offers.append(Offer(f"Add virtual GPUs ({VIRTUAL_SPEC})", virtual))
        if isinstance(command, NewTensor) and not command.fall_back:
            offers.append(Offer("Create it on the CPU", _on_cpu(command)))
    return Answer(
        title=title,
        words=words,
        facts=facts,
        code=code,
        failed=True,
        cancelled=isinstance(error, Cancelled),
        offers=tuple(offers),
        subject=_subject(command),
    )


def with_rebuilding(workspace: Workspace, answer: Answer, command: Command) -> Answer:
    """The answer to a command that failed. Where files have changed since the model was made of them, that comes
    first."""
    last = command.commands[-1] if isinstance(command, Steps) else command
    if not (spec_of(last).runs or isinstance(last, Check)):
        return answer
    words, offers = rebuilding(workspace, object_name(getattr(last, "target", "")))
    return msgspec.structs.replace(answer, words=f"{answer.words} {words}".rstrip(), offers=(*offers, *answer.offers))


def rebuilding(workspace: Workspace, name: str) -> tuple[str, tuple[Offer, ...]]:
    """Which files have changed since the model was made of them, as a sentence, and the way out; empty where none
    has."""
    for outdated in named("outdated"):
        found: tuple[str, tuple[Offer, ...]] = outdated(workspace, name)
        return found
    return "", ()


class Parts(NamedTuple):
    """Those of an answer that depend on the error."""

    title: str
    words: str
    facts: tuple[Fact, ...]
    offers: Sequence[Offer] = ()
    code: str = ""


def _run_failed(error: RunFailed, command: Command | None) -> Parts:
    frame = error.frame
    target = getattr(command, "target", "")
    model = object_name(target)
    facts = tuple(Fact(item.label, operand_text(item)) for item in error.operands)
    title = f"{target} ran out of memory" if error.reason == "memory" else f"{target} did not run"
    if frame is None:
        return Parts(title, sentence(str(error)) + (f" It was{_at(error)}." if error.place is not None else ""), facts)
    layer = f"'{frame.path}'" if frame.path else "the model itself"
    kind = type(frame.module).__name__
    if frame.path:
        facts = (Fact("layer", f"{frame.path} ({kind})"), *facts)
    if error.reason == "container":
        return Parts(
            f"An nn.{kind} holds layers, it does not run them",
            (
                f"{layer[:1].upper()}{layer[1:]} is an nn.{kind}: it registers its layers, so that .to() and"
                " parameters() find them, but it has no forward, because it does not know in which order to run them."
                " Loop over it in the forward of your own module, or use nn.Sequential when they simply run one after"
                " the other."
            ),
            facts,
            code=f"for layer in {expression(f'{model}:{frame.path}' if frame.path else model)}:\n    x = layer(x)",
        )
    if error.reason == "memory":
        return Parts(title, sentence(str(error)), facts)
    if error.place is not None:
        facts = (*facts, Fact("line", f"{PurePath(error.place.file).name}:{error.place.line}"))
    if error.reason == "devices" or error.finding is not None:
        return _mixed_run(error, command, layer, kind, facts)
    shapes = ", ".join(shape_text(item.shape) for item in frame.operands)
    words = (
        f"It stopped in {layer} ({kind})"
        + (f", which was given {shapes}" if shapes else "")
        + f"{_at(error)}. {sentence(str(error))}"
    )
    return Parts(title, words, facts, _casts(error, command))


def _mixed_run(error: RunFailed, command: Command | None, layer: str, kind: str, facts: tuple[Fact, ...]) -> Parts:
    assert error.frame is not None
    target = getattr(command, "target", "")
    title = f"{target}: tensors on different devices"
    model = object_name(target)
    inputs = error.frame.operands
    own = [item for item in error.operands if item not in inputs]
    said = " and ".join(f"{item.label} is on {item.device}" for item in _one_per_device(error.operands))
    stopped = f"It stopped in {layer} ({kind}){_at(error)}"
    finding = error.finding
    if finding is not None:
        facts = (*facts, Fact("operands", str(finding.message)))
    if finding is not None and (finding.rule == "default-device" or len(error.devices) < 2):
        words = f"{stopped}. {finding.message} {finding.fix}"
        return Parts(title, words, (_said(error), *facts), _check_offers(error, model, command))
    words = f"{stopped}: {said}. PyTorch computes on one device at a time and moves nothing by itself."
    offers: list[Offer] = []
    code = ""
    given = getattr(command, "input", None) if _verb(command) else None
    if any("not registered" in item.label for item in own):
        fix = "Hold layers in an nn.ModuleList and tensors in a buffer." if finding is None else finding.fix
        words += f" What is not registered does not follow .to(). {fix}"
    elif len(error.model_devices) > 1:
        device = inputs[0].device if inputs else error.model_devices[0]
        offers.append(_and_again(f"Move all of {model} to {device}", Move(targets=(model,), device=device), command))
        advice, more = _ways_out(error, command)
        words += advice or " The model's parts are on different devices: move them together."
        offers += [_and_again(offer.label, offer.command, command) for offer in more]
    elif given is not None and error.model_devices:
        home = error.model_devices[0]
        names = tuple(part.strip() for part in given.split(","))
        offers.append(_and_again(f"Move {' and '.join(names)} to {home}", Move(targets=names, device=home), command))
        if inputs and len({item.device for item in inputs}) == 1:
            there = inputs[0].device
            offers.append(_and_again(f"Move {model} to {there}", Move(targets=(model,), device=there), command))
        code = "\n".join(f"{variable(name)} = {variable(name)}.to({quoted(home)})" for name in names)
        words += f" Move the input to {home} first."
    return Parts(title, words, (_said(error), *facts), [*offers, *_check_offers(error, model, command)], code)


def _ways_out(error: Exception, command: Command | None) -> tuple[str, list[Offer]]:
    """What features say and offer."""
    words, offers = "", []
    for ways_out in named("ways_out"):
        more, offered = ways_out(error, command)
        words += more
        offers += offered
    return words, offers


def _said(error: Exception) -> Fact:
    """The message that the same line has in a program of the user's own."""
    return Fact("PyTorch says", str(error))


def _casts(error: RunFailed, command: Command | None) -> list[Offer]:
    """Give the input the dtype of the layer that stopped, or the model that of its input, where those differ."""
    assert error.frame is not None
    given = getattr(command, "input", None) if _verb(command) else None
    inputs = error.frame.operands
    came = {item.dtype for item in inputs}
    own = {item.dtype for item in error.operands[len(inputs) :]}
    if given is None or len(came) != 1 or len(own) != 1 or came == own or not all("float" in one for one in came | own):
        return []
    names, device = tuple(part.strip() for part in given.split(",")), inputs[0].device
    (has,), (wanted,) = came, own
    model = object_name(getattr(command, "target", ""))
    return [
        _and_again(
            f"Cast {' and '.join(names)} to {wanted}", Move(targets=names, device=device, dtype=wanted), command
        ),
        _and_again(f"Cast {model} to {has}", Move(targets=(model,), device=device, dtype=has), command),
    ]


def _verb(command: Command | None) -> str:
    """What buttons call it, where it runs a model on an input; empty otherwise."""
    return "" if command is None else spec_of(command).runs


def _and_again(label: str, first: Command, command: Command | None) -> Offer:
    """Do this, and then what was refused."""
    verb = _COMBINES[command.operator] if isinstance(command, Combine) else _verb(command)
    if command is None or not verb:
        return Offer(label, first)
    return Offer(f"{label} and {verb}", Steps(commands=(first, msgspec.structs.replace(command, request=0))))


def _check_offers(error: RunFailed, model: str, command: Command | None) -> list[Offer]:
    """The doctor, where a device other than the CPU takes part; it does what failed."""
    device = next((device for device in (*error.model_devices, *error.devices) if device != "cpu"), None)
    if device is None:
        return []
    train = bool(_verb(command)) and not isinstance(command, Forward)
    check = Check(target=model, device=device, train=train)
    return [Offer(f"Check {model} on {device}", check)]


def _at(error: RunFailed) -> str:
    """` at line 12 of net.py`; empty where no line of the model's code is known."""
    return "" if error.place is None else f" at line {error.place.line} of {PurePath(error.place.file).name}"


def _one_per_device(operands: Sequence[Operand]) -> list[Operand]:
    return list({item.device: item for item in reversed(operands)}.values())[::-1]


def _combine_failed(error: CombineFailed, command: Command | None) -> Parts:
    left, right = error.left, error.right
    facts = (Fact(left.label, operand_text(left)), Fact(right.label, operand_text(right)))
    symbol = command.operator if isinstance(command, Combine) else "+"
    title = f"{left.label} {symbol} {right.label} does not work"
    if error.dtypes and not error.mixed:
        words = f"{left.label} is {left.dtype} and {right.label} is {right.dtype}. This operation takes one dtype only."
        offers = [
            _copy_and_combine(right.label, right.device, command, left.dtype),
            _copy_and_combine(left.label, left.device, command, right.dtype),
        ]
        return Parts(title, words, facts, offers)
    if not error.mixed:
        return Parts(title, sentence(str(error)), facts)
    words = (
        f"{left.label} is on {left.device} and {right.label} is on {right.device}. PyTorch computes on one device at a"
        " time and copies nothing by itself: copy one over, then it works."
    )
    to_right = _copy_and_combine(left.label, right.device, command)
    to_left = _copy_and_combine(right.label, left.device, command)
    x, y = variable(left.label), variable(right.label)
    if left.device == "cpu":  # what is on a GPU stays there
        offers, code = [to_right, to_left], f"{x}.to({quoted(right.device)}) {symbol} {y}"
    else:
        offers, code = [to_left, to_right], f"{x} {symbol} {y}.to({quoted(left.device)})"
    return Parts(title, words, (_said(error), *facts), offers, code)


def _copy_and_combine(name: str, device: str, command: Command | None, dtype: str | None = None) -> Offer:
    copy = Move(targets=(name,), device=device, dtype=dtype, copy=True)
    return _and_again(f"Copy {name} {f'as {dtype}' if dtype else f'to {device}'}", copy, command)


def _on_cpu(command: NewTensor) -> NewTensor:
    return msgspec.structs.replace(command, device="cpu", request=0)


def _subject(command: Command | None) -> str | None:
    if isinstance(command, Move) and len(command.targets) == 1:
        return object_name(command.targets[0])
    target = getattr(command, "target", None)
    return object_name(target) if isinstance(target, str) else None


def operand_text(item: Operand) -> str:
    """`2×20 float32 on cpu`."""
    return f"{shape_text(item.shape)} {item.dtype} on {item.device}"
