"""Models whose source is unknown: what can be said without running them, on a copy. Jobs thread."""

from __future__ import annotations

from torch import nn

from devexplorer.core.base.errors import BadInput, first_line
from devexplorer.core.base.formats import bytes_text
from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.diagnosis import diagnosis
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.moving import moved
from devexplorer.core.doctor.static.checks import StaticChecks
from devexplorer.core.models.copies import deep_copy
from devexplorer.core.models.inputs import CHEAP_BYTES
from devexplorer.core.models.walk import bytes_of, every_tensor
from devexplorer.core.records.devices import DeviceInfo
from devexplorer.core.records.doctor import Diagnosis

WHY = "the code that made this model is unknown, so it cannot be rebuilt in a separate process and run there"


def examined_here(name: str, model: nn.Module, info: DeviceInfo) -> Diagnosis:
    """What a look at a copy says, before and after a move. Raises `BadInput` where it is too large, or cannot be
    copied."""
    size = bytes_of(every_tensor(model))
    if size > CHEAP_BYTES:
        raise BadInput(f"'{name}' has {bytes_text(size)}, too much for a copy to look at, and {WHY}")
    try:
        second = deep_copy(model)
    except Exception as error:
        raise BadInput(f"'{name}' cannot be copied ({first_line(error)}), and {WHY}") from error
    collector, origins = FindingCollector(), Origins()
    checks = StaticChecks(second, origins, collector)
    checks.before()
    checks.moved(info.id if moved(second, info, None, collector) is not None else None)
    origins.close()
    collector.not_checked("the forward", f"{WHY}.")
    return diagnosis(collector, name, info, train=False, inputs="", operations=0)
