"""Makes the diagnosis of what was collected: each cause once, errors before warnings, notes apart, with patches. The
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
    collector: FindingCollector, target: str, info: DeviceInfo, *, train: bool, inputs: str, operations: int
) -> Diagnosis:
    """All that the doctor says."""
    found = [_finding(evidence) for evidence in without_consequences(collector.evidence(), collector.used)]
    problems = sorted(
        (item for item in found if item.severity != "note"), key=lambda item: SEVERITIES.index(item.severity)
    )
    return Diagnosis(
        target=target,
        device=info.id,
        device_name=info.name,
        simulated=info.simulated,
        train=train,
        inputs=inputs,
        problems=tuple(problems),
        notes=tuple(item for item in found if item.severity == "note"),
        unchecked=collector.unchecked(),
        no_gradient=tuple(collector.no_gradient),
        uncompiled=collector.uncompiled(),
        operations=operations,
    )


def _finding(evidence: Evidence) -> Finding:
    finding = evidence.told()
    return finding if finding.patch is not None else replace(finding, patch=patch_for(finding, evidence.holder))
