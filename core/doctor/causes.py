"""One finding for one cause: an attribute that stays behind, and the operation that then fails because of it, are one. Pure functions."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from msgspec.structs import replace

from devexplorer.core.records.doctor import Finding

_CAUSES = ("unregistered-module", "unregistered-parameter", "unregistered-tensor", "parameter-not-leaf", "stale-alias")
"""Rules about what a move does not reach."""
_CONSEQUENCES = ("mixed-devices", "fails-on-device")
_BECAUSE = " Because of that "
_COPY = "device-hop"
"""Forward brings it over at every call, as it need not once that has changed."""


def without_consequences(findings: Sequence[Finding]) -> list[Finding]:
    """The same findings without those that follow from another; that one says where it makes the run fail."""
    causes = [one for one in findings if one.rule in _CAUSES]
    left: dict[int, Finding] = {id(one): one for one in findings}
    for one in findings:
        if one.rule not in (*_CONSEQUENCES, _COPY):
            continue
        cause = next((cause for cause in causes if _follows(one, cause)), None)
        if cause is None or (one.rule == _COPY and cause.severity == "note"):
            continue
        del left[id(one)]
        if one.rule == _COPY:
            continue
        left[id(cause)] = with_consequence(left[id(cause)], one.file, one.line)
    return list(left.values())


def with_consequence(cause: Finding, file: str, line: int) -> Finding:
    """The same as an error that says where it makes the run fail, the first such line; `line` 0: nobody knows where."""
    where = f"{_BECAUSE}the run fails at {os.path.basename(file)}, line {line}." if line and _BECAUSE not in cause.message else ""
    return replace(cause, message=f"{cause.message}{where}", severity="error")


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
