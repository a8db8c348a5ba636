"""Fixes that are mechanical, as unified diffs: made from the syntax tree of the line at fault; and applied when the
user says so. Between the two `core.doctor.trials` tries them.

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
from typing import NamedTuple

from msgspec.structs import replace

from devexplorer.core.base import BadInput, replacing
from devexplorer.core.doctor.code.fixes import FIXES, Edits, after_super, blamed, devices_at_hand
from devexplorer.core.isolation.source_location import is_sample, kind_of
from devexplorer.core.records import Finding


class Fix(NamedTuple):
    """A change of one file that is meant to mend a finding."""

    file: str
    """Absolute."""
    before: str
    after: str
    patch: str
    """The same as a unified diff; the file's name is relative to the current folder where it is below that."""
    lines: frozenset[int]
    """Numbers of the lines that it changes."""


def fixes_for(finding: Finding, holder: str = "attribute", floating: frozenset[str] | None = frozenset()) -> list[Fix]:
    """What could mend a finding mechanically, the likeliest first; whether it does has to be tried. `holder`: what
    holds its tensors, as in `Hidden`. `floating`: see `FaultSite`."""
    make = FIXES.get(finding.rule)
    if make is None or not finding.line or kind_of(finding.file) != "user" or not os.path.isfile(finding.file):
        return []  # a cell of a notebook has lines, but is no file
    sites = blamed(finding, holder, floating or frozenset())
    possible = [edits for site in sites for edits in make(site)]
    if len(sites) > 1:  # the other statements of the line may have the same fault
        together: Edits = []
        for site in sites:
            together += next(make(site._replace(finding=replace(finding, path=""))), [])
        possible.append(together)
    found: dict[str, Fix] = {}
    for edits in possible:
        before, after = sites[0].text.source, sites[0].text.with_edits(edits)
        if after in found or after == before or not is_python(after):
            continue
        lines: set[int] = set()
        for node, _ in edits:
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        found[after] = Fix(finding.file, before, after, _diff(finding.file, before, after), frozenset(lines))
    return list(found.values())


def is_python(text: str) -> bool:
    """Whether a text can be parsed."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


_AT_HAND = re.compile(r"\bx\.device\b")
NOTHING_AT_HAND = " No tensor is at hand at this line: pass its device in as an argument."


def advice_for(finding: Finding) -> str:
    """The fix in words, with what a patch would take where the words say `x.device`."""
    words = str(finding.fix)
    registers, asks = finding.rule.startswith("unregistered"), _AT_HAND.search(words) is not None
    if not (asks or registers) or not finding.line or kind_of(finding.file) != "user":
        return words
    sites = blamed(finding, "attribute")
    if not sites:
        return words
    site = sites[-1]
    if registers:
        if site.making and not after_super(site):
            words += " Do that after super().__init__()."
        return words
    known = devices_at_hand(site)
    if not known:
        return _AT_HAND.sub("device", words) + NOTHING_AT_HAND
    return _AT_HAND.sub(lambda _: known[0], words)


def _diff(file: str, old: str, new: str) -> str:
    name = os.path.basename(file)
    if os.path.abspath(file).startswith(os.path.join(os.getcwd(), "")):
        name = os.path.relpath(file)
    text = ""
    for line in difflib.unified_diff(_lines(old), _lines(new), f"a/{name}", f"b/{name}"):
        text += line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
    return text


def _lines(text: str) -> list[str]:
    """With their ends; `str.splitlines` would also end one at a form feed within a text."""
    return io.StringIO(text, newline="\n").readlines()


def digest_of(file: str) -> str:
    """SHA-256 of the file that a patch is for; empty for one of DevExplorer's own, or one that cannot be read."""
    try:
        return "" if is_sample(file) else _digest(Path(file).read_bytes())
    except OSError:
        return ""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def apply(file: str, patch: str, digest: str) -> Path:
    """Write the file with the patch applied, atomically; returns where the former one is kept: `net.py.orig`, or the
    next free number. A check finds several faults, so where another of its patches came first, this one joins it.
    Raises `BadInput` with one line, and has changed nothing, when that cannot be."""
    path = Path(os.path.realpath(file))
    try:
        former = path.read_bytes()
        checked: bytes | None = former
        if digest and _digest(former) != digest:
            checked = _kept_before(path, digest)
        new = None
        if checked is not None:
            new = joined(checked.decode(), former.decode(), patched(checked.decode(), patch))
        if new is None:
            raise BadInput(f"the file {path.name} has changed since the check; check again for a patch that fits")
        kept = _keep(path)
        with replacing(path) as temporary:
            temporary.write_bytes(new.encode())
            shutil.copymode(path, temporary)
    except OSError as error:
        raise BadInput(f"the file {path.name} cannot be changed: {error.strerror or error}") from error
    return kept


def _kept_before(path: Path, digest: str) -> bytes | None:
    """The file as the check saw it, from what an earlier patch kept beside it."""
    for kept in path.parent.glob(f"{glob.escape(path.name)}.orig*"):
        if os.path.isfile(kept) and _digest(content := kept.read_bytes()) == digest:
            return content
    return None


def joined(before: str, now: str, after: str) -> str | None:
    """What a text has become, with what turns it as it was into another one; None where both change one line."""
    former, fixed, lines = _lines(before), _lines(after), _lines(now)
    places: dict[int, int] = {}
    for block in difflib.SequenceMatcher(None, former, lines, autojunk=False).get_matching_blocks():
        for index in range(block.size):
            places[block.a + index] = block.b + index
    changes = difflib.SequenceMatcher(None, former, fixed, autojunk=False).get_opcodes()
    for tag, begin, end, new_begin, new_end in reversed(changes):
        if tag == "equal":
            continue
        at = places.get(begin, -1)
        if any(places.get(begin + index) != at + index for index in range(max(end - begin, 1))):
            return None
        lines[at : at + end - begin] = fixed[new_begin:new_end]
    merged = "".join(lines)
    return merged if is_python(merged) else None


def _keep(path: Path) -> Path:
    """A copy of the file beside it, under a name that was free."""
    for number in count():
        kept = path.with_name(f"{path.name}.orig.{number}".removesuffix(".0"))
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
