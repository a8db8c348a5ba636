"""Makes the diagnosis of what was collected. Pure functions.

One finding for one cause: an attribute that stays behind, and the operation that then fails because of it, are one.
Errors come before warnings, notes apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from devexplorer.core.doctor.findings.collector import Effect, Evidence, FindingCollector
from devexplorer.core.records import DeviceInfo, Diagnosis, Finding
from devexplorer.core.records.doctor import SEVERITIES

_CAUSES = ("unregistered-module", "unregistered-parameter", "unregistered-tensor", "parameter-not-leaf", "stale-alias")
"""Rules about what a move does not reach."""
_CONSEQUENCES = ("mixed-devices", "fails-on-device")
_COPY = "device-hop"
"""Forward copies the tensor at every call, which ends when the cause is fixed."""


def without_consequences(evidence: Sequence[Evidence], used: Mapping[str, set[Effect]] | None) -> list[Evidence]:
    """The evidence without what follows from another finding; the cause states where the run fails.

    `used`: after a forward that went through, which unregistered tensors took part (-> how): what made nothing
    fail is no error.
    """
    causes = [item for item in evidence if item.rule in _CAUSES]
    left = {id(item): item for item in evidence}
    copied: dict[int, str] = {}
    for item in evidence:
        if item.rule not in (*_CONSEQUENCES, _COPY):
            continue
        followed = [cause for cause in causes if _follows(item, cause)]
        severity = item.finding.severity
        if not followed or (item.rule == _COPY and followed[0].finding.severity == "note" != severity):
            continue  # both matter: that the tensor stays behind, and what every call costs
        del left[id(item)]
        for cause in followed:
            if item.rule == _COPY:
                copied[id(cause)] = "warning" if "warning" in (severity, copied.get(id(cause))) else "note"
            else:
                left[id(cause)] = left[id(cause)].failing(item.complete())
    if used is not None:
        for cause in causes:
            if cause.rule == "unregistered-tensor":
                left[id(cause)] = _settled(left[id(cause)], copied.get(id(cause)), used)
    return list(left.values())


def _settled(cause: Evidence, copied: str | None, used: Mapping[str, set[Effect]]) -> Evidence:
    """A tensor that stays behind, after a run that it did not make fail: slow at every call, returned, or harmless."""
    severity = cause.finding.severity
    if severity == "note" or cause.failure is not None:
        return cause
    effects = {effect for path, known in used.items() if _within(path, cause.finding.path) for effect in known}
    if copied == "warning" or Effect.SLOW in effects:
        effect, severity = Effect.SLOW, "note" if cause.place.library else "warning"
    elif Effect.RETURNED in effects:
        effect, severity = Effect.RETURNED, "note" if cause.place.library else "warning"
    elif severity == "warning":
        return cause
    else:
        effect, severity = Effect.ON_CPU if effects else Effect.UNUSED, "note"
        if copied == "note":
            effect = Effect.COPIED_ONCE
    return cause._replace(finding=replace(cause.finding, severity=severity), effect=effect)


def passed_over(findings: Sequence[Finding], rules: Collection[str]) -> list[Finding]:
    """The findings without those of some rules. What fails because of one of those is reported itself, unless its own
    rule is passed over."""
    left = [item for item in findings if item.rule not in rules]
    failing = (after for item in findings if item.rule in rules for after in item.consequences)
    return [*left, *(item for item in failing if item.rule not in rules)]


def _follows(item: Evidence, cause: Evidence) -> bool:
    """Whether an operand of what failed is the attribute of the cause, or the failing line runs within it."""
    path = cause.finding.path
    if not path:
        return False
    if cause.rule == "unregistered-module" and _within(item.finding.path, path):
        return True
    return any(_within(operand, path) for operand in item.operands)


def _within(path: str, attribute: str) -> bool:
    """Whether a path leads to the attribute or to something that it holds: `cache['k']` is within `cache`."""
    base = attribute.partition("[")[0]
    return path == base or path.startswith((f"{base}.", f"{base}[", f"{base} "))


def diagnosis(
    collector: FindingCollector,
    target: str,
    info: DeviceInfo,
    *,
    train: bool,
    inputs: str,
    operations: int,
    modes: tuple[str, ...] = (),
) -> Diagnosis:
    """All that the doctor says."""
    found = [evidence.complete() for evidence in without_consequences(collector.evidence(), collector.used)]
    problems = sorted(
        (item for item in found if item.severity != "note"), key=lambda item: SEVERITIES.index(item.severity)
    )
    return Diagnosis(
        target=target,
        device=info.id,
        device_name=info.name,
        simulated=info.simulated,
        train=train,
        modes=modes,
        inputs=inputs,
        problems=tuple(problems),
        notes=tuple(item for item in found if item.severity == "note"),
        unchecked=collector.unchecked(),
        no_gradient=tuple(collector.no_gradient),
        uncompiled=collector.uncompiled(),
        operations=operations,
    )
