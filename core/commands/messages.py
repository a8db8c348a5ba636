"""Turns reports of the workspace into `Answer` records. Pure functions, jobs thread.

An answer says what happened, why, and what to do next; then the Python that does the same. Moves are in
`move_messages`, refusals and errors in `refusals`.
"""

from __future__ import annotations

import cmath
import os
from collections.abc import Sequence

from devexplorer.core.base import (
    MOVE_LAZILY_IMPORT,
    bytes_text,
    count_text,
    object_name,
    quoted,
    seconds_text,
    sentence,
    shape_text,
    variable,
)
from devexplorer.core.commands.move_messages import clocks_text
from devexplorer.core.commands.refusals import operand_text
from devexplorer.core.models import Operand
from devexplorer.core.models.gradient_cuts import missing_words
from devexplorer.core.models.samples import Recipe
from devexplorer.core.records import Answer, BuildModel, Check, Combine, Fact, NewTensor, ObjectSnapshot, Offer, Row
from devexplorer.core.workspace import Target, run_code
from devexplorer.core.workspace.runs import Ran


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
    code = run_code.backward(report, snapshot.source) if backward else run_code.forward(report, snapshot.source)
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
