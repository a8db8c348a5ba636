"""Why a forward fails whose tensors are on several devices: runs it once more, watched, as far as the operation. The
calling thread."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.findings.rules import DEVICES_MEET
from devexplorer.core.doctor.tracing.op_tracer import OpTracer
from devexplorer.core.records.doctor import Finding


class _Found(BaseException):
    """Ends the forward; no `except Exception` of the model's is to go on after it."""


class _FirstOnly(FindingCollector):
    """Ends the forward with the first finding that says why it fails."""

    def add(self, rule: str, message: str, fix: str, **fields: object) -> None:
        """See `FindingCollector.add`."""
        super().add(rule, message, fix, **fields)  # type: ignore[arg-type]
        if rule in DEVICES_MEET:
            raise _Found


def cause(model: nn.Module, inputs: Sequence[Tensor]) -> Finding | None:
    """What the doctor says about the first operation that fails for where its operands are; None where it finds none.

    The random generator of the CPU is left as it was; what else forward changes is changed once more.
    """
    homes = Counter(tensor.device for tensor in chain(model.parameters(), model.buffers()))
    homes = homes or Counter(tensor.device for tensor in inputs if tensor.device.type != "cpu")
    if not homes:
        return None
    collector = _FirstOnly()
    with torch.random.fork_rng(devices=[]):
        try:
            with OpTracer(model, homes.most_common(1)[0][0], collector, None, inputs):
                model(*inputs)
        except (_Found, Exception, SystemExit) as ended:
            traceback.clear_frames(ended.__traceback__)  # they hold activations
    return next((finding for finding in collector.findings() if finding.rule in DEVICES_MEET), None)
