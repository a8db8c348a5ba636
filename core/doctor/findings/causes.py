"""One finding for one cause: an attribute that stays behind, and the operation that then fails because of it, are one.
Pure functions."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from devexplorer.core.records.doctor import Finding

_CAUSES = ("unregistered-module", "unregistered-parameter", "unregistered-tensor", "parameter-not-leaf", "stale-alias")
"""Rules about what a move does not reach."""
_CONSEQUENCES = ("mixed-devices", "fails-on-device")
_BECAUSE = " Because of that "
_SLOW = " Forward copies it to the device at every call."
_BROUGHT = " The first forward copies it to the device."
_ON_CPU = " Forward works with it there, and nothing failed."
_IDLE = " Nothing in this run used it."
_COPY = "device-hop"
"""Forward brings it over at every call, as it need not once that has changed."""


def without_consequences(findings: Sequence[Finding], used: Mapping[str, bool] | None = None) -> list[Finding]:
    """The same findings without those that follow from another; that one says where it makes the run fail.

    `used`: after a forward that went through, which tensors that are not registered took part (-> whether that makes
    every call slow): what made nothing fail is no error.
    """
    causes = [one for one in findings if one.rule in _CAUSES]
    left: dict[int, Finding] = {id(one): one for one in findings}
    copied: dict[int, str] = {}
    for one in findings:
        if one.rule not in (*_CONSEQUENCES, _COPY):
            continue
        cause = next((cause for cause in causes if _follows(one, cause)), None)
        if cause is None or (one.rule == _COPY and cause.severity == "note" != one.severity):
            continue  # each says something: that it stays behind, and what every call costs
        del left[id(one)]
        if one.rule == _COPY:
            copied[id(cause)] = "warning" if "warning" in (one.severity, copied.get(id(cause))) else "note"
            continue
        left[id(cause)] = with_consequence(left[id(cause)], one)
    if used is not None:
        for cause in causes:
            if cause.rule == "unregistered-tensor":
                left[id(cause)] = _settled(left[id(cause)], copied.get(id(cause)), used)
    return list(left.values())


def _settled(cause: Finding, copied: str | None, used: Mapping[str, bool]) -> Finding:
    """A tensor that stays behind, after a run that it did not make fail: slow at every call, or no trouble at all."""
    if cause.severity == "note" or _BECAUSE in cause.message:
        return cause
    base = cause.path.partition("[")[0]
    took_part = [
        slow for path, slow in used.items() if path == base or path.startswith((f"{base}[", f"{base}.", f"{base} "))
    ]
    if copied == "warning" or any(took_part):
        return replace(cause, message=f"{cause.message}{_SLOW}", severity="warning")
    if cause.severity == "warning":
        return cause
    if copied == "note":
        return replace(cause, message=f"{cause.message}{_BROUGHT}", severity="note")
    return replace(cause, message=f"{cause.message}{_ON_CPU if took_part else _IDLE}", severity="note")


def with_consequence(cause: Finding, consequence: Finding) -> Finding:
    """The same as an error that says where it makes the run fail, the first such line."""
    file, line = consequence.file, consequence.line
    where = (
        f"{_BECAUSE}the run fails at {os.path.basename(file)}, line {line}."
        if line and _BECAUSE not in cause.message
        else ""
    )
    consequences = (*cause.consequences, consequence)
    return replace(cause, message=f"{cause.message}{where}", severity="error", consequences=consequences)


def passed_over(findings: Sequence[Finding], rules: Collection[str]) -> list[Finding]:
    """The findings without those of some rules; what fails because of one of those is told itself, unless its own rule
    is passed over."""
    left = [one for one in findings if one.rule not in rules]
    failing = (after for one in findings if one.rule in rules for after in one.consequences if after.rule not in rules)
    return [*left, *failing]


def _follows(finding: Finding, cause: Finding) -> bool:
    """Whether what failed is the attribute of the cause, or runs within it."""
    if not cause.path:
        return False
    base = cause.path.partition("[")[0]
    owner, _, name = base.rpartition(".")
    if cause.rule == "unregistered-module":
        return re.match(rf"{re.escape(base)}([.\[]|$)", finding.path) is not None or _names(finding.message, base)
    own = [f"self.{name}"] if finding.path == owner else []
    return any(_names(finding.message, word) for word in [*own, base])


def _names(message: str, word: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(word)}(?![\w])", message) is not None
