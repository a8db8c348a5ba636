"""Findings as the rules state them, facts as fields, their collector, and the diagnosis of what was collected. Runs
where the model is examined: the main thread of the doctor's process, or the jobs thread.

What is only known when the run is over is a field, too; `complete` makes the sentences of all fields, once.

One finding for one cause: an attribute that stays behind, and the operation that then fails because of it, are one.
Errors come before warnings, notes apart.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from enum import Enum
from typing import Any, NamedTuple

from msgspec.structs import replace

from devexplorer.core.base import Message
from devexplorer.core.doctor.code.patches import advice_for
from devexplorer.core.doctor.findings.rules import RULES
from devexplorer.core.isolation.source_location import NOWHERE, SourceLocation, code_lines
from devexplorer.core.records import DeviceInfo, Diagnosis, Finding, NoGradient, Unchecked, Uncompiled
from devexplorer.core.records.doctor import SEVERITIES

OF_LIBRARY = (
    "Nothing to change in your code{reached}: the library does this. Another of its options, or a newer version, may"
    " not."
)


class Effect(Enum):
    """What a tensor that stays behind did to a run that went through; the value is the sentence."""

    SLOW = " Forward copies it to the device at every call."
    COPIED_ONCE = " The first forward copies it to the device."
    ON_CPU = " Forward works with it there, and nothing failed."
    UNUSED = " Nothing in this run used it."
    RETURNED = " Forward returns it there, beside what is on the device."


class Evidence(NamedTuple):
    """A finding with what the rules know about it."""

    finding: Finding
    """Its message is what can be said at once, without the end of the sentence where `frequency` is set."""
    place: SourceLocation = NOWHERE
    holder: str = "attribute"
    """What holds the tensors it is about: see `Hidden.holder`."""
    operands: frozenset[str] = frozenset()
    """Paths in the model of the tensors that took part."""
    frequency: bool = False
    """Whether the message ends with how often it happens."""
    first_call_only: bool = False
    mode: str = ""
    """The one mode that it happens in: `training`, `evaluation`; empty: in the run itself."""
    effect: Effect | None = None
    failure: Finding | None = None
    """The first line at which the run fails because of this."""

    @property
    def rule(self) -> str:
        """The rule's key."""
        return self.finding.rule

    def failing(self, consequence: Finding) -> Evidence:
        """The same as an error that made the run fail."""
        consequences = (*self.finding.consequences, consequence)
        finding = replace(self.finding, severity="error", consequences=consequences)
        return self._replace(finding=finding, failure=self.failure or (consequence if consequence.line else None))

    def complete(self) -> Finding:
        """The finding with its whole message and the lines around its place."""
        message = self.finding.message
        if self.frequency:
            message += " in the first call." if self.first_call_only else " at every call."
        elif self.first_call_only:
            message += " That happens in the first call only."
        if self.mode:
            message += f" That happens in {self.mode} mode only."
        if self.effect is not None:
            message += self.effect.value
        if self.failure is not None:
            where = f"{os.path.basename(self.failure.file)}, line {self.failure.line}"
            message += f" Because of that the run fails at {where}."
        code = code_lines(self.place) if self.place.line else None
        return replace(self.finding, message=message, fix=advice_for(self.finding), code=code)


def _key(rule: str, place: SourceLocation, path: str = "") -> tuple[str, str, int, str]:
    """What is one finding: a rule at a line, or about a path where no line is known."""
    return rule, place.file, place.line, "" if place.line else path


class FindingCollector:
    """Findings and what could not be checked; `path` is the module that is at work now, which the tracer keeps up to
    date."""

    def __init__(self) -> None:
        self.path = ""
        self._evidence: dict[tuple[str, str, int, str], Evidence] = {}
        self._unchecked: dict[tuple[str, str, int], Unchecked] = {}
        self.no_gradient: list[NoGradient] = []
        """Parameters that a backward gave no gradient."""
        self._ignoring = False
        self._mode = ""
        self.used: dict[str, set[Effect]] | None = None
        """After a forward that went through: tensors that are not registered and took part -> how."""
        self._uncompiled: dict[Uncompiled, None] = {}
        self._floating: dict[tuple[str, int], frozenset[str]] = {}

    def add(
        self,
        rule: str,
        message: str,
        fix: str,
        *,
        path: str | None = None,
        place: SourceLocation | None = None,
        reached: SourceLocation | None = None,
        severity: str | None = None,
        consequence: Finding | None = None,
        holder: str = "attribute",
        operands: Iterable[str] = (),
        frequency: bool = False,
        **cost: Any,
    ) -> None:
        """Note a finding. `path` is where the model is at work now unless it is given. `holder`, `operands` and
        `frequency`: see `Evidence`; `cost`: `bytes`, `seconds` and `simulated` of `Finding`.

        The same rule at the same line, or for the same path where there is no line, is one finding that happened
        several times. What is only slow in an installed library is a note: its user cannot change it; `reached` is the
        line of theirs that leads there.
        """
        where = self.path if path is None else path
        location = place or NOWHERE
        if self.again(rule, location, where):
            key = _key(rule, location, where)
            if key in self._evidence:  # another operand may be to blame this time
                known = self._evidence[key]
                self._evidence[key] = known._replace(operands=known.operands | set(operands))
            return
        weight = severity or RULES[rule].severity
        if weight == "warning" and location.library:
            weight = "note"
            at = ""
            if reached is not None and not reached.library:
                at = f", which gets there at {os.path.basename(reached.file)}:{reached.line}"
            fix = OF_LIBRARY.format(reached=at)
        finding = Finding(
            rule=rule,
            path=where,
            file=location.file,
            line=location.line,
            message=Message(message),
            fix=Message(fix),
            severity=weight,
            **cost,
            consequences=() if consequence is None else (consequence,),
        )
        self._evidence[_key(rule, location, where)] = Evidence(
            finding, location, holder, frozenset(operands), frequency, mode=self._mode
        )

    def again(self, rule: str, place: SourceLocation | None, path: str = "") -> bool:
        """Whether that was found there before: then its count grows, and no message is needed."""
        if self._ignoring:
            return True
        key = _key(rule, place or NOWHERE, path)
        known = self._evidence.get(key)
        if known is not None and known.mode == self._mode:  # it was counted in the run itself
            finding = known.finding
            self._evidence[key] = known._replace(finding=replace(finding, count=finding.count + 1))
        return known is not None

    def not_checked(self, what: str, reason: str, place: SourceLocation | None = None) -> None:
        """Note that something could not be looked at."""
        if self._ignoring:
            return
        location = place or NOWHERE
        self._unchecked.setdefault(
            (what, location.file, location.line),
            Unchecked(what=what, reason=Message(reason), file=location.file, line=location.line),
        )

    def left_uncompiled(self, what: str, place: SourceLocation | None) -> None:
        """Note that code runs as it is written which `what` (`torch.compile`) would compile, and the line that asks for
        it."""
        location = place or NOWHERE
        self._uncompiled[Uncompiled(what=what, file=location.file, line=location.line)] = None

    def has(self, rule: str, place: SourceLocation, *, problem: bool = False) -> bool:
        """Whether that rule was found at that line, with `problem` as more than a note."""
        known = self._evidence.get(_key(rule, place))
        return known is not None and not (problem and known.finding.severity == "note")

    def made_fail(self, rule: str, place: SourceLocation, consequence: Finding) -> None:
        """What was found at that line made the run fail elsewhere: it is an error, and says so."""
        key = _key(rule, place)
        self._evidence[key] = self._evidence[key].failing(consequence)

    @contextmanager
    def ignoring(self) -> Iterator[None]:
        """Within, nothing is noted or counted."""
        self._ignoring = True
        try:
            yield
        finally:
            self._ignoring = False

    @contextmanager
    def in_mode(self, mode: str) -> Iterator[None]:
        """Within, the model runs in the other mode: what is new happens there only, the rest is not counted again."""
        self._mode = mode
        try:
            yield
        finally:
            self._mode = ""

    def found_now(self, rules: Collection[str]) -> bool:
        """Whether one of these rules has found something, as more than a note, in the mode that the model runs in."""
        return bool(self._slow(rules))

    def _slow(self, rules: Collection[str]) -> list[tuple[str, str, int, str]]:
        found = []
        for key, known in self._evidence.items():
            if known.rule in rules and known.finding.severity == "warning" and known.mode == self._mode:
                found.append(key)
        return found

    def once(self, rules: Collection[str], second: FindingCollector) -> None:
        """Of what was found by these rules: what a `second` call had not again happened once, and costs nothing after
        that."""
        for key in self._slow(rules):
            if key not in second._evidence:
                known = self._evidence[key]
                finding = replace(known.finding, severity="note")
                self._evidence[key] = known._replace(finding=finding, first_call_only=True)

    def holder(self, finding: Finding) -> str:
        """What holds the tensors that a finding is about: see `Hidden.holder`."""
        place = SourceLocation(finding.file, finding.line, "")
        return self._evidence[_key(finding.rule, place, finding.path)].holder

    def note_floating(self, place: SourceLocation, names: Set[str]) -> None:
        """A tensor of the default floating dtype was made at a line where these are floating tensors, as that line
        could write them: `x`, `self.fc.weight`. At each call the variables may be others."""
        known = self._floating.get((place.file, place.line))
        if known is not None:
            names = {name for name in known if name in names or "." in name}
        self._floating[place.file, place.line] = frozenset(names)

    def note_other_dtype(self, place: SourceLocation) -> None:
        """A tensor of another dtype was made at a line."""
        self._floating[place.file, place.line] = frozenset()

    def floating(self, place: SourceLocation | Finding) -> frozenset[str] | None:
        """Floating tensors at the line where others of the default dtype were made; None where none was."""
        return self._floating.get((place.file, place.line))

    def evidence(self) -> list[Evidence]:
        """Everything that was found, in order."""
        return list(self._evidence.values())

    def findings(self) -> tuple[Finding, ...]:
        """The same with their whole messages, consequences included."""
        return tuple(known.complete() for known in self._evidence.values())

    def unchecked(self) -> tuple[Unchecked, ...]:
        """What could not be looked at, in order."""
        return tuple(self._unchecked.values())

    def uncompiled(self) -> tuple[Uncompiled, ...]:
        """What runs as it is written rather than compiled, in order."""
        return tuple(self._uncompiled)


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
    effects: set[Effect] = set()
    for path, known in used.items():
        if _within(path, cause.finding.path):
            effects |= known
    matters = "note" if cause.place.library else "warning"
    if copied == "warning" or Effect.SLOW in effects:
        effect, severity = Effect.SLOW, matters
    elif Effect.RETURNED in effects:
        effect, severity = Effect.RETURNED, matters
    elif severity == "warning":
        return cause
    elif copied == "note":
        effect, severity = Effect.COPIED_ONCE, "note"
    else:
        effect, severity = Effect.ON_CPU if effects else Effect.UNUSED, "note"
    return cause._replace(finding=replace(cause.finding, severity=severity), effect=effect)


def passed_over(findings: Sequence[Finding], rules: Collection[str]) -> list[Finding]:
    """The findings without those of some rules. What fails because of one of those is reported itself, unless its own
    rule is passed over."""
    left = list(findings)
    for item in findings:
        if item.rule in rules:
            left += item.consequences
    return [item for item in left if item.rule not in rules]


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
    found.sort(key=lambda item: SEVERITIES.index(item.severity))
    return Diagnosis(
        target=target,
        device=info.id,
        device_name=info.name,
        simulated=info.simulated,
        train=train,
        modes=modes,
        inputs=inputs,
        problems=tuple(item for item in found if item.severity != "note"),
        notes=tuple(item for item in found if item.severity == "note"),
        unchecked=collector.unchecked(),
        no_gradient=tuple(collector.no_gradient),
        uncompiled=collector.uncompiled(),
        operations=operations,
    )
