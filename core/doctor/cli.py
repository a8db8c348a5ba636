"""`devexplorer doctor`: which line puts a tensor on the wrong device? The model runs in its own process; this one
needs no torch."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from devexplorer.core.base import bytes_text, count_text, parse_input_shapes, parse_model_dtype, printable, seconds_text
from devexplorer.core.cli.findings import TerminalFindings, current_folder, target
from devexplorer.core.cli.startup import refuse
from devexplorer.core.cli.terminal import console, print_document, waiting
from devexplorer.core.devices.backend import parse_device
from devexplorer.core.doctor.ask import LIMIT_SECONDS, diagnosed
from devexplorer.core.doctor.findings.rules import RULES, passes, verdict, without_gradient
from devexplorer.core.records import CodeLines, Diagnosis, DoctorRequest, Finding, Unchecked, Uncompiled

# The doctor's diagnosis as text and as workflow commands for GitHub. Main thread; no torch.

_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold cyan"}
_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
"""Severity -> GitHub's workflow command."""
_INDENT = "    "


def print_diagnosis(out: Console, diagnosis: Diagnosis) -> None:
    """A block for each finding, then what was not checked, then one line about all of it."""
    here = os.curdir
    for finding in (*diagnosis.problems, *diagnosis.notes):
        for line in _block(finding, here):
            out.print(line)
        out.print()
    if diagnosis.unchecked:
        out.print(Text("not checked", style="bold"))
        for item in diagnosis.unchecked:
            out.print(Text(f"{_INDENT}{printable(_unchecked(item, here))}"))
        out.print()
    if diagnosis.uncompiled:
        out.print(Text(printable(uncompiled_text(diagnosis.uncompiled, here))))
        out.print()
    out.print(Text(printable(summary(diagnosis))))


def summary(diagnosis: Diagnosis) -> str:
    """`lenet on vgpu:0 (Tesla T4, simulated), forward with 8x1x28x28: no problem, 12 operations watched`."""
    name = ", ".join(filter(None, (diagnosis.device_name, "simulated" if diagnosis.simulated else "")))
    given = f" with {diagnosis.inputs}" if diagnosis.inputs else ""
    where = f"{diagnosis.device} ({name})" if name else diagnosis.device
    watched = f"{'; ' if diagnosis.unchecked else ', '}{count_text(diagnosis.operations, 'operation')} watched"
    missing = without_gradient(diagnosis)
    more = f"; without a gradient: {missing}" if missing else ""
    return f"{diagnosis.target} on {where}, {passes(diagnosis)}{given}: {verdict(diagnosis)}{watched}{more}"


def uncompiled_text(uncompiled: Sequence[Uncompiled], folder: str) -> str:
    """`examined as written, without torch.compile (net.py:7) and torch.jit.script (net.py:12, net.py:20)`."""
    places: dict[str, list[str]] = {}
    for item in uncompiled:
        known = places.setdefault(item.what, [])
        if item.file:
            known.append(_place(item.file, item.line, folder))
    parts = [f"{what} ({', '.join(lines)})" if lines else what for what, lines in places.items()]
    return f"examined as written, without {' and '.join(parts)}"


def unchecked_text(diagnosis: Diagnosis) -> str:
    """`2 things could not be checked: the forward (its inputs are unknown …), torch.cuda.Stream (…)`."""
    listed = ", ".join(f"{item.what} ({str(item.reason).rstrip('.')})" for item in diagnosis.unchecked)
    return f"{count_text(len(diagnosis.unchecked), 'thing')} could not be checked: {listed}"


def github_lines(diagnosis: Diagnosis, folder: str, *, allowed: bool = False) -> Iterator[str]:
    """A workflow command for each finding and for each thing that was not checked (a notice where that is `allowed`,
    else a warning).

    The form is GitHub's: docs.github.com, "Workflow commands for GitHub Actions"; files below `folder` are named
    relative to it.
    """
    for finding in (*diagnosis.problems, *diagnosis.notes):
        rule = RULES.get(finding.rule)
        title = finding.rule if rule is None else f"{rule.title} ({rule.key})"
        command = _COMMANDS.get(finding.severity, "error")
        yield _annotation(command, title, f"{finding.message} {finding.fix}", finding, folder)
    for left in diagnosis.uncompiled:
        yield _annotation("notice", f"Examined without {left.what}", "It was examined as it is written.", left, folder)
    for item in diagnosis.unchecked:
        command = "notice" if allowed else "warning"
        yield _annotation(command, f"Not checked: {item.what}", str(item.reason), item, folder)


def shown_file(file: str, folder: str) -> str:
    """A file as people know it: relative where it lies below the folder."""
    for known in (os.path.abspath, os.path.realpath):
        path, base = known(file), known(folder)
        if path.startswith(os.path.join(base, "")):
            return os.path.relpath(path, base)
    return file


# --- GitHub


def _annotation(command: str, title: str, message: str, at: Finding | Uncompiled | Unchecked, folder: str) -> str:
    properties = {"title": title}
    if at.file:
        properties = {"file": shown_file(at.file, folder).replace(os.sep, "/"), "line": str(at.line), **properties}
    listed = ",".join(f"{name}={_escaped(value, ':,')}" for name, value in properties.items())
    return f"::{command} {listed}::{_escaped(message)}"


def _escaped(text: str, more: str = "") -> str:
    """The characters that end a command or a property, percent-encoded as GitHub's runner decodes them."""
    return "".join(f"%{ord(letter):02X}" if letter in f"%\r\n{more}" else letter for letter in text)


# --- text


def _block(finding: Finding, folder: str) -> Iterator[Text]:
    path = f"  {printable(finding.path)}" if finding.path else ""
    yield Text.assemble((finding.severity, _STYLES.get(finding.severity, "bold")), (f"  {finding.rule}", "bold"), path)
    if finding.file:
        yield Text(f"{_INDENT}{printable(_place(finding.file, finding.line, folder))}", style="dim")
        if (code := _code(finding.code, finding.line)) is not None:
            yield Text(f"{_INDENT}{_INDENT}{code}")
    yield Text(f"{_INDENT}{printable(str(finding.message))}")
    yield Text(f"{_INDENT}fix: {printable(str(finding.fix))}")
    if cost := _cost(finding):
        yield Text(f"{_INDENT}{cost}", style="dim")
    if finding.patch:
        yield Text(f"{_INDENT}patch:")
        for line in finding.patch.splitlines():
            yield Text(f"{_INDENT}{_INDENT}{printable(line.expandtabs())}", style=_patch_style(line))


def _place(file: str, line: int, folder: str) -> str:
    return f"{shown_file(file, folder)}:{line}" if line else shown_file(file, folder)


def _code(code: CodeLines | None, line: int) -> str | None:
    """The line itself, without what it is indented by."""
    if code is None or not code.first <= line < code.first + len(code.lines):
        return None
    return printable(code.lines[line - code.first].strip())


def _cost(finding: Finding) -> str:
    parts = []
    if finding.count > 1:
        parts.append(f"{finding.count:,} times")
    if finding.bytes is not None:
        parts.append(bytes_text(finding.bytes))
    if finding.seconds is not None:
        parts.append(seconds_text(finding.seconds, finding.simulated))
    return ", ".join(parts) + (" each time" if finding.count > 1 and len(parts) > 1 else "")


def _patch_style(line: str) -> str:
    if line.startswith(("+++", "---", "@@")):
        return "dim"
    return {"+": "green", "-": "red"}.get(line[:1], "")


def _unchecked(item: Unchecked, folder: str) -> str:
    place = f" ({_place(item.file, item.line, folder)})" if item.file else ""
    return f"{item.what}{place}: {item.reason}"


CLEAN, PROBLEMS, COULD_NOT = 0, 1, 2


def doctor(arguments: argparse.Namespace) -> int:
    """Let the doctor examine a model and print what it says.

    Returns 0 when everything was checked and nothing is wrong, 1 for problems, 2 when something could not be checked
    and nothing else is wrong, unless `--allow-unchecked` takes that for clean. Notes are no problems.
    """
    findings = TerminalFindings()
    request = _request(arguments, findings)
    limit = findings.seconds(arguments.timeout, "--timeout") or LIMIT_SECONDS
    if arguments.json and arguments.github:
        findings.add("--json and --github are two forms of one answer; give one of them")
    findings.demand_none()
    with waiting() as watch:
        diagnosis = diagnosed(request, watch, limit)
    if arguments.json:
        print_document(**document(diagnosis))
    elif arguments.github:
        for line in github_lines(
            diagnosis, os.environ.get("GITHUB_WORKSPACE") or os.curdir, allowed=arguments.allow_unchecked
        ):
            print(printable(line))
    else:
        print_diagnosis(console(), diagnosis)
    if diagnosis.problems:
        return PROBLEMS
    if diagnosis.unchecked and not arguments.allow_unchecked:
        refuse(f"no problem was found, but {unchecked_text(diagnosis)}; --allow-unchecked takes that for clean")
        return COULD_NOT
    return CLEAN


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """What `--json` prints: everything, without the code around findings and what followed from them."""
    content = asdict(diagnosis)
    return content | {name: [_finding(item) for item in content[name]] for name in ("problems", "notes")}


def _finding(finding: Finding) -> dict[str, Any]:
    fields = asdict(finding)
    return {name: value for name, value in fields.items() if name not in ("code", "consequences", "digest")}


def _request(arguments: argparse.Namespace, findings: TerminalFindings) -> DoctorRequest:
    """What is asked for; harmless values where something is wrong."""
    findings.check_virtual(arguments.virtual)
    findings.parsed(arguments.device, parse_device, None)
    findings.parsed(arguments.input, parse_input_shapes, None)
    return DoctorRequest(
        source=target(arguments.target, findings),
        folder=current_folder(findings),
        device=arguments.device or "",
        virtual=arguments.virtual or "",
        train=arguments.train,
        inputs=arguments.input or "",
        dtype=findings.parsed(arguments.dtype, parse_model_dtype, None),
    )
