"""`devexplorer doctor`: which line puts a tensor on the wrong device? The model runs in its own process; this one
needs no torch."""

from __future__ import annotations

import argparse
import os
from typing import Any

from msgspec.structs import asdict

from devexplorer.core.base import parse_input_shapes, parse_model_dtype, printable
from devexplorer.core.cli.terminal.findings import Findings
from devexplorer.core.cli.terminal.options import current_folder, target
from devexplorer.core.cli.terminal.output import console, print_document
from devexplorer.core.cli.terminal.refusal import refuse
from devexplorer.core.cli.terminal.waiting import waiting
from devexplorer.core.devices.device_id import parse_device
from devexplorer.core.doctor.ask import LIMIT_SECONDS, diagnosed
from devexplorer.core.doctor.commands.cli_print import github_lines, print_diagnosis, unchecked_text
from devexplorer.core.records import Diagnosis, DoctorRequest, Finding

CLEAN, PROBLEMS, COULD_NOT = 0, 1, 2


def doctor(arguments: argparse.Namespace) -> int:
    """Let the doctor examine a model and print what it says.

    Returns 0 when everything was checked and nothing is wrong, 1 for problems, 2 when something could not be checked
    and nothing else is wrong, unless `--allow-unchecked` takes that for clean. Notes are no problems.
    """
    findings = Findings()
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


def _request(arguments: argparse.Namespace, findings: Findings) -> DoctorRequest:
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
