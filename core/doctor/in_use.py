"""A model that is in use elsewhere, as a running script's, as far as the doctor can see without touching it: nothing is
moved, copied or run, and no value is read. The thread that uses the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace
from torch import nn
from torch.optim import Optimizer

from devexplorer.core.base import first_line
from devexplorer.core.doctor.check import live_findings
from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector, diagnosis
from devexplorer.core.doctor.static.checks import StaticChecks
from devexplorer.core.doctor.static.gradients import report_summed_losses
from devexplorer.core.models import Extras, named_modules
from devexplorer.core.models.class_source import class_source
from devexplorer.core.records import DeviceInfo, Diagnosis, Finding
from devexplorer.core.records.doctor import SEVERITIES

FORWARD = "the forward, operation by operation"
WHY = (
    "the script runs it itself: operands on the wrong device, dtypes of activations and devices in the code were not"
    " traced. Open the model here and choose Check for that."
)
THE_MOVE = "a move"
WHY_NO_MOVE = "the model stays where the script has it: what a move would leave behind or untie was not tried."


def examined_in_use(
    name: str,
    model: nn.Module,
    info: DeviceInfo,
    *,
    optimizers: Iterable[Optimizer],
    files: Iterable[str],
    seen: Sequence[Finding] = (),
) -> Diagnosis:
    """What its parts and its source say. `files`: the user's, beside those of the model's classes; `seen`: what was
    found while it ran."""
    collector = FindingCollector()
    try:
        StaticChecks(model, Origins(), collector).in_use()
    except Exception as error:  # code of the model's: properties, `__getattr__`
        collector.not_checked("the attributes", f"the model raised when it was looked at: {first_line(error)}.")
    report_summed_losses(sorted({*files, *_files_of(model)}), collector)
    collector.not_checked(FORWARD, WHY)
    collector.not_checked(THE_MOVE, WHY_NO_MOVE)
    found = diagnosis(collector, name, info, train=False, inputs="", operations=0)
    live = list(live_findings(name, model, Extras()))
    for optimizer in optimizers:
        live += live_findings(name, model, Extras(optimizer=optimizer))
    every: list[Finding] = [*found.problems]
    for finding in (*live, *seen):
        if finding not in every:
            every.append(finding)
    problems = [item for item in every if item.severity != "note"]
    problems.sort(key=lambda item: SEVERITIES.index(item.severity))
    notes = (*found.notes, *(item for item in every if item.severity == "note"))
    return replace(found, problems=tuple(problems), notes=notes)


def _files_of(model: nn.Module) -> set[str]:
    files = set()
    for _, module in named_modules(model):
        source = class_source(type(module))
        if source is not None and not source.library:
            files.add(source.file)
    return files
