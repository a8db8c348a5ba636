"""Makes the diagnosis of what is in the book: each cause once, errors before warnings, notes apart, with patches. The
main thread."""

from __future__ import annotations

from msgspec.structs import replace

from devexplorer.core.doctor.code.patches import patch_for
from devexplorer.core.doctor.findings.causes import without_consequences
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.findings.evidence import Evidence
from devexplorer.core.doctor.findings.rules import SEVERITIES
from devexplorer.core.records.devices import DeviceInfo
from devexplorer.core.records.doctor import Diagnosis, Finding


def diagnosis(
    book: FindingCollector, target: str, info: DeviceInfo, *, train: bool, inputs: str, operations: int
) -> Diagnosis:
    """All that the doctor says."""
    found = [_told(evidence) for evidence in without_consequences(book.evidence(), book.used)]
    problems = sorted((one for one in found if one.severity != "note"), key=lambda one: SEVERITIES.index(one.severity))
    return Diagnosis(
        target=target,
        device=info.id,
        device_name=info.name,
        simulated=info.simulated,
        train=train,
        inputs=inputs,
        problems=tuple(problems),
        notes=tuple(one for one in found if one.severity == "note"),
        unchecked=book.unchecked(),
        no_gradient=book.no_gradient(),
        uncompiled=book.uncompiled(),
        operations=operations,
    )


def _told(evidence: Evidence) -> Finding:
    finding = evidence.told()
    return finding if finding.patch is not None else replace(finding, patch=patch_for(finding, evidence.holder))
