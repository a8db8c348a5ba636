"""Tries each fix before it is offered: the examination is repeated with the functions of the file changed, and the
fix is right if that finds it gone, nothing new wrong, and what the CPU computes. The main thread of the doctor's
process.

Fixes are tried alone, because the user may apply one of several, and then all together. What does not pass is advice in
words. Without a candidate nothing is repeated.
"""

from __future__ import annotations

import difflib
import gc
import io
import linecache
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import Tensor

from devexplorer.core.base import BadInput, Message, Report
from devexplorer.core.doctor.code.patches import NOTHING_AT_HAND, Fix, digest_of, fixes_for, joined
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.models import tensors_in
from devexplorer.core.records import Diagnosis, Finding

MOST = 4096
"""Values of a tensor that are compared."""
_TOLERANCES = {torch.float64: 1e-6, torch.float16: 2e-2, torch.bfloat16: 5e-2}
"""Of the largest value; 1e-3 for others: the order of a sum differs from device to device."""
BY_DEVICE = 2e-2
"""The same where code chooses another way, or a narrower dtype, on another device."""
Key = tuple[str, str, int, str]


class ComparedValues(NamedTuple):
    """A tensor as it is compared: some of its values, on the CPU."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    sample: Tensor


class Outcome(NamedTuple):
    """What one examination came to."""

    found: Diagnosis
    ended: bool
    """Whether the run ended before its end."""
    output: list[ComparedValues] | None
    """What forward returned on the device; None: it did not, or that cannot be read."""
    reference: list[ComparedValues] | None
    """What it returns on the CPU; None where it fails there, or chance takes part."""
    parameters: frozenset[str]
    """Paths of the model's."""


def values_of(output: Any) -> list[ComparedValues] | None:
    """Of every tensor in an output."""
    try:
        return [_values(item.detach()) for item in tensors_in(output)]
    except Exception:  # a tensor of an unusual kind
        return None


def _values(tensor: Tensor) -> ComparedValues:
    flat = (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).reshape(-1)
    sample = flat[:: max(1, flat.numel() // MOST)].cpu()
    return ComparedValues(tuple(tensor.shape), tensor.dtype, sample.double() if sample.is_floating_point() else sample)


def alike(first: Sequence[ComparedValues], second: Sequence[ComparedValues], tolerance: float | None = None) -> bool:
    """Whether two outputs are the same within what devices differ by; with a `tolerance` also in other dtypes."""
    if len(first) != len(second):
        return False
    for one, other in zip(first, second, strict=True):
        if one.shape != other.shape or (tolerance is None and one.dtype != other.dtype):
            return False
        if not (one.sample.is_floating_point() and other.sample.is_floating_point()):
            if not torch.equal(one.sample, other.sample):
                return False
        elif one.sample.numel():
            scale = max(1.0, float(other.sample.nan_to_num(0.0, 0.0, 0.0).abs().max()))
            most = (tolerance or _TOLERANCES.get(one.dtype, 1e-3)) * scale
            if not torch.allclose(one.sample, other.sample, rtol=0.0, atol=most, equal_nan=True):
                return False
    return True


Candidates = list[tuple[Finding, list[Fix]]]
MODULES = "unregistered-module"
"""Once registered, dropout and normalisation follow `eval()`: then the CPU computes something else, too."""


def with_fixes(found: Diagnosis, collector: FindingCollector, trials: Trials) -> Diagnosis:
    """The diagnosis with the patches that passed."""
    candidates = []
    for item in (*found.problems, *found.notes):
        fixes = fixes_for(item, collector.holder(item), collector.floating(item))
        if fixes:
            candidates.append((item, fixes))
    right = trials.right(candidates)

    def complete(item: Finding) -> Finding:
        fix = right.get(_key(item))
        if fix is None:
            return item
        words = Message(str(item.fix).removesuffix(NOTHING_AT_HAND))  # it has found something
        return replace(item, fix=words, patch=fix.patch, digest=digest_of(item.file))

    return replace(found, problems=tuple(map(complete, found.problems)), notes=tuple(map(complete, found.notes)))


class Trials:
    """Repeats an examination with one fix after the other, until `until` (`time.monotonic`; 0: without end)."""

    def __init__(self, examine: Callable[[], Outcome], progress: Report, until: float = 0.0) -> None:
        self._examine, self._progress, self._until = examine, progress, until
        self._longest = 0.0

    def right(self, candidates: Candidates) -> dict[Key, Fix]:
        """Which finding is mended by what, each alone and all together."""
        control = self._tried([]) if candidates else None
        if control is None:
            return {}
        # What was there once only is left out: its absence would show nothing.
        known = {_key(finding) for finding, _ in candidates} & _keys(control.found)
        passed: dict[Key, Fix] = {}
        mended: dict[Fix, set[Key]] = {}
        for finding, fixes in candidates:
            key = _key(finding)
            if key not in known:
                continue
            self._progress(0.95, f"trying the fix for {os.path.basename(finding.file)}:{finding.line}")
            for fix in fixes:
                if fix not in mended:
                    mended[fix] = self._mended([fix], known, control)
                if key in mended[fix]:
                    passed[key] = fix
                    break
        for key, fix in passed.items():  # of two for one line, the one that mends more
            same = [other for other in mended if key in mended[other] and not fix.lines.isdisjoint(other.lines)]
            passed[key] = max(same, key=lambda other: len(mended[other]))
        # As many of those that passed as pass together, the first ones first.
        kept: dict[Key, Fix] = {}
        for one in (passed, *({key: fix} for key, fix in passed.items())):
            some = {**kept, **one}
            together = list(dict.fromkeys(some.values()))
            if len(together) < 2 or self._mended(together, some.keys(), control) == some.keys():
                kept = some
                if one is passed:
                    break
        return kept

    def _mended(self, fixes: list[Fix], keys: Set[Key], control: Outcome) -> set[Key]:
        """Which of these findings the fixes mend; none where anything else is wrong then that was not before."""
        changes, after = _changes(fixes), self._tried(fixes)
        if changes is None or after is None:
            return set()
        moved = {file: _former_lines(change) for file, change in changes.items()}
        new = {_key(item, moved) for item in after.found.problems} - _keys(control.found)
        unchecked = {(item.what, item.file) for item in after.found.unchecked}
        unchecked -= {(item.what, item.file) for item in control.found.unchecked}
        if control.ended:  # it comes further now, and may find there what was there before
            lines = {(fix.file, line) for fix in fixes for line in fix.lines}
            new = {key for key in new if key[1:3] in lines}
        elif unchecked or after.ended:
            return set()
        if new or not (_untrained(after.found) & control.parameters) <= _untrained(control.found):
            return set()
        mended = set(keys) - _keys(after.found, moved)
        if after.reference is None or after.ended:
            return mended
        if after.output is None or not alike(after.output, after.reference):
            return set()
        if control.reference is not None and not alike(after.reference, control.reference):
            return mended if any(rule == MODULES for rule, *_ in mended) else set()
        return mended

    def _tried(self, fixes: list[Fix]) -> Outcome | None:
        """How the examination ends with these fixes; None: it cannot be made, or not in time."""
        began = time.monotonic()
        if self._until and began + 2 * self._longest > self._until:
            return None
        changes = _changes(fixes)
        if changes is None:
            return None
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), exchanged(changes):
                return self._examine()
        except (BadInput, SyntaxError, ValueError):
            return None
        finally:
            self._longest = max(self._longest, time.monotonic() - began)


def _changes(fixes: list[Fix]) -> dict[str, FileChange] | None:
    """Each file with all of its fixes; None where two of them change one line."""
    texts: dict[str, FileChange] = {}
    for fix in fixes:
        after: str | None = fix.after
        if fix.file in texts:
            after = joined(fix.before, texts[fix.file].after, fix.after)
        if after is None:
            return None
        texts[fix.file] = FileChange(fix.before, after)
    return texts


def _former_lines(change: FileChange) -> dict[int, int]:
    """The number of each line after a change -> what it was before."""
    before, after = (io.StringIO(text, newline="\n").readlines() for text in change)
    former: dict[int, int] = {}
    for _, begin, end, new_begin, new_end in difflib.SequenceMatcher(None, before, after, False).get_opcodes():
        for line in range(new_begin, new_end):
            former[line + 1] = min(begin + line - new_begin, max(end - 1, begin)) + 1
    return former


def _key(finding: Finding, moved: Mapping[str, Mapping[int, int]] | None = None) -> Key:
    """What tells findings apart: the rule and the line as it was before, or the path where there is no line."""
    line = (moved or {}).get(finding.file, {}).get(finding.line, finding.line)
    return finding.rule, finding.file, line, "" if line else finding.path


def _keys(found: Diagnosis, moved: Mapping[str, Mapping[int, int]] | None = None) -> set[Key]:
    return {_key(item, moved) for item in (*found.problems, *found.notes)}


def _untrained(found: Diagnosis) -> set[str]:
    return {path for item in found.no_gradient for path in item.parameters}


# Runs the functions of a file as a changed text of it says, without importing anything again: their code is exchanged
# while a block lasts.


class FileChange(NamedTuple):
    """A file before and after."""

    before: str
    after: str


@contextmanager
def exchanged(changes: Mapping[str, FileChange]) -> Iterator[None]:
    """Within, these files (absolute names) are as their changes say, for who runs and for who reads them.

    Raises `SyntaxError` or `ValueError` where a text cannot take the place of the other.
    """
    undo: list[tuple[FunctionType, CodeType]] = []
    read: dict[str, tuple[int, None, list[str], str]] = {}
    try:
        for file, change in changes.items():
            codes = dict(_pairs(*(compile(text, file, "exec", dont_inherit=True) for text in change)))
            for function in _functions(file):
                code = function.__code__
                if codes.get(code, code) is not code:
                    function.__code__ = codes[code]
                    undo.append((function, code))
            read[file] = len(change.after), None, change.after.splitlines(keepends=True), file
        linecache.cache.update(read)  # without a time of change it is not looked for on the disk
        yield
    finally:
        for function, code in undo:
            function.__code__ = code
        for file in read:
            linecache.cache.pop(file, None)


def _pairs(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The code of each function, and what takes its place. Codes are equal by what they do and where they stand."""
    inside, others = _inside(before), _inside(after)
    if [code.co_name for code in inside] != [code.co_name for code in others]:
        raise ValueError("the functions of the file have changed")
    for code, other in zip(inside, others, strict=True):
        yield code, other
        yield from _pairs(code, other)


def _inside(code: CodeType) -> list[CodeType]:
    return [item for item in code.co_consts if isinstance(item, CodeType)]


def _functions(file: str) -> list[FunctionType]:
    """Those that were made from a file, decorated ones too."""
    end, found = os.path.basename(file), []
    for item in gc.get_objects():
        if type(item) is not FunctionType or not item.__code__.co_filename.endswith(end):
            continue
        if os.path.abspath(item.__code__.co_filename) == file:
            found.append(item)
    return found
