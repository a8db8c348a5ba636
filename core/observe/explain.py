"""`devexplorer explain FILE`, and the same in the window: why memory ran out, from the file that was written then. Main
thread of the command line; jobs thread of the engine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from devexplorer.core.base import ProgressMonitor, bytes_text, count_text, printable, shape_text
from devexplorer.core.cli.terminal import print_document
from devexplorer.core.observe.memory_report import CodeLine, ExplainReport, LiveTensor, OutOfMemoryReport, read
from devexplorer.core.records import Answer, Fact, SentFrom
from devexplorer.core.records.base import plain
from devexplorer.core.workspace import CommandResult, Workspace

MOST_ROWS = 12


def explain(arguments: argparse.Namespace) -> int:
    """Print it."""
    report = read(arguments.path)
    if arguments.json:
        print_document(**plain(report))
        return 0
    for line in lines(report):
        print(printable(line))
    return 0


def open_file(context: Any, path: Path, sent_from: SentFrom | None) -> None:
    """Let the inspector of the window show it. Main thread of the window."""
    context.controller.send(ExplainReport(path=str(path), sent_from=sent_from))


def explain_report(workspace: Workspace, command: ExplainReport, progress: ProgressMonitor) -> CommandResult:
    """The same as an answer."""
    report = read(command.path)
    words = " ".join([*where(report), *report.cause.evidence])
    remedies = "".join(f"\n• {remedy}" for remedy in report.cause.remedies)
    facts = tuple(Fact(part.name, bytes_text(part.bytes)) for part in report.parts)
    return CommandResult(Answer(title=report.cause.text, words=f"{words}{remedies}", facts=facts))


def where(report: OutOfMemoryReport) -> list[str]:
    """What the script was doing, and what it asked for, as sentences."""
    simulated = ", simulated" if report.simulated else ""
    script = os.path.basename(report.script) or "Python"
    doing = "" if report.phase == "script" else f" during {_DURING[report.phase]}"
    layer = f", in {report.layer}" if report.layer and report.phase == "forward" else ""
    sentences = [
        f"{script} ran out of memory on {report.device} ({report.device_name}{simulated}){doing}{layer}.",
        f"It asked for {bytes_text(report.requested_bytes)}; {bytes_text(report.allocated_bytes)} of"
        f" {bytes_text(report.capacity_bytes)} were in use, and the largest free piece had"
        f" {bytes_text(report.largest_free_bytes)}.",
    ]
    if report.place is not None:
        sentences.insert(1, f"It was at {_line(report.place)}.")
    return sentences


_DURING = {
    "forward": "a forward pass",
    "backward": "backward",
    "optimizer step": "a step of the optimizer",
    "loading": "loading",
    "moving": "a move to the device",
    "copying": "a copy",
    "building": "the construction of a model",
}


def lines(report: OutOfMemoryReport) -> list[str]:
    """All of it; the first line names the cause."""
    found = [report.cause.text, "", *where(report), *report.cause.evidence]
    found += _block("What would have made it fit", (f"- {remedy}" for remedy in report.cause.remedies))
    found += _block(
        "Memory of the device",
        (
            _row(part.bytes, part.name + (f" ({count_text(part.tensors, 'tensor')})" if part.tensors else ""))
            for part in report.parts
        ),
    )
    found += _block(
        "Models",
        (
            _row(
                one.bytes_here,
                f"{one.name or 'a model'} ({one.kind}, {one.dtype}, {'training' if one.training else 'eval'} mode);"
                f" gradients {bytes_text(one.gradient_bytes)}, optimizer state {bytes_text(one.optimizer_bytes)}",
            )
            for one in report.models
        ),
    )
    found += _block(
        "Containers of tensors",
        (
            _row(
                one.bytes,
                f"{one.where}: {count_text(one.tensors, 'tensor')}"
                + (f"; their graphs hold {bytes_text(one.graph_bytes)} more" if one.graph_bytes else ""),
            )
            for one in report.containers
        ),
    )
    found += _block("Largest tensors", _tensors(report))
    found += _block(
        "Saved for backward by layer",
        (_row(one.bytes, f"{one.layer or '(before the first layer)'}: {one.operation}") for one in report.layers),
    )
    found += _block("Made at", (_row(size, _line(line)) for line, size in report.lines))
    return found + list(report.notes)


def _block(title: str, rows: Iterable[str]) -> list[str]:
    shown = list(rows)
    return ["", f"{title}:", *shown[:MOST_ROWS]] if shown else []


def _row(size: int, words: str) -> str:
    return f"{bytes_text(size):>12}  {words}"


def _line(line: CodeLine) -> str:
    place = f"{os.path.basename(line.file)}, line {line.line}"
    return f"{place}: {line.text}" if line.text else place


def _tensors(report: OutOfMemoryReport) -> list[str]:
    """Tensors that are alike are one row."""
    alike: dict[tuple[Any, ...], list[LiveTensor]] = {}
    for tensor in report.tensors:
        made = tensor.made_at and (tensor.made_at.file, tensor.made_at.line)
        alike.setdefault((tensor.shape, tensor.dtype, tensor.part, tensor.name, made), []).append(tensor)
    rows = []
    for same in sorted(alike.values(), key=lambda same: -sum(tensor.bytes for tensor in same)):
        first = same[0]
        count = f"{len(same)} of " if len(same) > 1 else ""
        words = f"{count}{shape_text(first.shape)} {first.dtype}, {first.part}"
        if first.name:
            words += f": {first.name}"
        elif first.held_by:
            words += f"; {first.held_by[0]}"
        if first.made_at is not None and not first.name:
            words += f"; made at {os.path.basename(first.made_at.file)}, line {first.made_at.line}"
        rows.append(_row(sum(tensor.bytes for tensor in same), words))
    left = report.tensors_left_out
    if left and len(rows) < MOST_ROWS:
        rows.append(_row(report.bytes_left_out, f"{count_text(left, 'smaller tensor')}"))
    return rows
