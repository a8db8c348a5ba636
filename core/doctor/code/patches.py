"""Fixes that are mechanical, as unified diffs: made from the syntax tree of the line at fault, checked by
parsing the result.

Pure but for reading the file. None wherever the right fix needs a decision.
"""

from __future__ import annotations

import ast
import difflib
import io
import os

from devexplorer.core.doctor.code.fault_site import blamed
from devexplorer.core.doctor.code.fixes import FIXES
from devexplorer.core.isolation.source_location import kind_of
from devexplorer.core.records import Finding


def patch_for(finding: Finding, holder: str = "attribute") -> str | None:
    """The fix of a finding as a unified diff against its file, whose name is relative to the current folder where it is
    below that. `holder`: what holds its tensors, as in `Hidden`."""
    make = FIXES.get(finding.rule)
    if make is None or not finding.line or kind_of(finding.file) != "user":
        return None
    line = blamed(finding, holder)
    if line is None:
        return None
    edits = make(line)
    if not edits:
        return None
    new = line.text.with_edits(edits if isinstance(edits, list) else [edits])
    try:
        ast.parse(new)
    except (SyntaxError, ValueError):
        return None
    return _diff(finding.file, line.text.source, new)


def _diff(file: str, old: str, new: str) -> str:
    name = (
        os.path.relpath(file)
        if os.path.abspath(file).startswith(os.path.join(os.getcwd(), ""))
        else os.path.basename(file)
    )
    lines = difflib.unified_diff(_lines(old), _lines(new), f"a/{name}", f"b/{name}")
    return "".join(item if item.endswith("\n") else f"{item}\n\\ No newline at end of file\n" for item in lines)


def _lines(text: str) -> list[str]:
    """With their ends; `str.splitlines` would also end one at a form feed within a text."""
    return io.StringIO(text, newline="\n").readlines()
