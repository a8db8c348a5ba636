"""Fixes that are mechanical, as unified diffs: made from the syntax tree of the line at fault, checked by
parsing the result; and applied when the user says so.

Pure but for reading the file, until `apply`. None wherever the right fix needs a decision.
"""

from __future__ import annotations

import ast
import difflib
import glob
import hashlib
import io
import os
import re
import shutil
from itertools import count
from pathlib import Path

from devexplorer.core.base import BadInput, replacing
from devexplorer.core.doctor.code.fault_site import blamed
from devexplorer.core.doctor.code.fixes import FIXES, TAKES_DEVICE, tensor_argument
from devexplorer.core.isolation.source_location import is_sample, kind_of
from devexplorer.core.records import Finding

_AT_HAND = re.compile(r"\bx\.device\b")


def patch_for(finding: Finding, holder: str = "attribute") -> str | None:
    """The fix of a finding as a unified diff against its file, whose name is relative to the current folder where it is
    below that. `holder`: what holds its tensors, as in `Hidden`."""
    make = FIXES.get(finding.rule)
    if make is None or not finding.line or kind_of(finding.file) != "user" or not os.path.isfile(finding.file):
        return None  # a cell of a notebook has lines, but is no file
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


def advice_for(finding: Finding) -> str:
    """The fix in words, with the name of the tensor whose device a patch would take where the words say `x`."""
    words = str(finding.fix)
    if finding.rule not in TAKES_DEVICE or not finding.line or kind_of(finding.file) != "user":
        return words
    line = blamed(finding, "attribute")
    known = None if line is None else tensor_argument(line)
    return words if known is None else _AT_HAND.sub(f"{known}.device", words)


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


def digest_of(file: str) -> str:
    """SHA-256 of the file that a patch is for; empty for one of DevExplorer's own, or one that cannot be read."""
    try:
        return "" if is_sample(file) else hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""


def apply(file: str, patch: str, digest: str) -> Path:
    """Write the file with the patch applied, atomically; returns where the former one is kept: `net.py.orig`, or the
    next free number. A check finds several faults, so where another of its patches came first, this one joins it.
    Raises `BadInput` with one line, and has changed nothing, when that cannot be."""
    path = Path(os.path.realpath(file))
    try:
        former = path.read_bytes()
        if digest and hashlib.sha256(former).hexdigest() == digest:
            new = patched(former.decode(), patch).encode()
        elif (checked := _kept_before(path, digest)) is not None:
            new = _merged(path, former.decode(), checked, patched(checked, patch)).encode()
        else:
            raise _changed(path)
        kept = _keep(path)
        with replacing(path) as temporary:
            temporary.write_bytes(new)
            shutil.copymode(path, temporary)
    except OSError as error:
        raise BadInput(f"the file {path.name} cannot be changed: {error.strerror or error}") from error
    return kept


def _changed(path: Path) -> BadInput:
    return BadInput(f"the file {path.name} has changed since the check; check again for a patch that fits")


def _kept_before(path: Path, digest: str) -> str | None:
    """The file as the check saw it, from what an earlier patch kept beside it."""
    for kept in path.parent.glob(f"{glob.escape(path.name)}.orig*"):
        if kept.is_file() and hashlib.sha256(content := kept.read_bytes()).hexdigest() == digest:
            return content.decode()
    return None


def _merged(path: Path, now: str, checked: str, fixed: str) -> str:
    """The file as it is now, with the lines that the fix changes; raises `BadInput` where one of them was changed
    since."""
    before, after, lines = _lines(checked), _lines(fixed), _lines(now)
    kept = difflib.SequenceMatcher(None, before, lines, autojunk=False).get_matching_blocks()
    places = {block.a + index: block.b + index for block in kept for index in range(block.size)}
    changes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for _tag, begin, end, new_begin, new_end in reversed([change for change in changes if change[0] != "equal"]):
        at = places.get(begin, -1)
        if any(places.get(begin + index) != at + index for index in range(max(end - begin, 1))):
            raise _changed(path)
        lines[at : at + end - begin] = after[new_begin:new_end]
    merged = "".join(lines)
    try:
        ast.parse(merged)
    except (SyntaxError, ValueError):
        raise _changed(path) from None
    return merged


def _keep(path: Path) -> Path:
    """A copy of the file beside it, under a name that was free."""
    for number in count():
        kept = path.with_name(f"{path.name}.orig{f'.{number}' if number else ''}")
        try:
            kept.touch(exist_ok=False)
        except FileExistsError:
            continue
        shutil.copy2(path, kept)
        return kept
    raise AssertionError


_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")


def patched(text: str, patch: str) -> str:
    """The text with a unified diff applied. Raises `BadInput` where it is not the text that the diff was made for."""
    old, changes = _lines(text), _lines(patch)
    new: list[str] = []
    at = 0
    for index, change in enumerate(changes[2:], start=2):  # behind both names
        if (hunk := _HUNK.match(change)) is not None:
            begin = int(hunk[1]) - (hunk[2] != "0")
            new, at = [*new, *old[at:begin]], begin
            continue
        sign, body = change[:1], change[1:]
        if index + 1 < len(changes) and changes[index + 1].startswith("\\"):  # "No newline at end of file"
            body = body.removesuffix("\n")
        if sign in " -":
            if old[at : at + 1] != [body]:
                raise BadInput(f"line {at + 1} is not what the patch expects; check again")
            at += 1
        if sign in " +":
            new.append(body)
    return "".join([*new, *old[at:]])
