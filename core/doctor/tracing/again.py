"""Runs a model that failed once more, to find out why: which line of forward made what fails in backward, and which
operation fails for where its operands are. The calling thread."""

from __future__ import annotations

import re
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.findings.rules import DEVICES_MEET
from devexplorer.core.doctor.tracing.op_tracer import OpTracer
from devexplorer.core.isolation.source_location import SourceLocation, innermost, place_at
from devexplorer.core.records import Finding

_FRAME = re.compile(r'File "(.+?)", line (\d+), in (\S+)')
_SAID = "Traceback of forward call that caused the error"


def forward_line(work: Callable[[], object]) -> SourceLocation | None:
    """The line whose operation raises in backward; `work` does forward and backward, as it did when it failed. None
    where it is unknown."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            with torch.autograd.detect_anomaly(check_nan=False):
                work()
        except (Exception, SystemExit) as error:
            traceback.clear_frames(error.__traceback__)  # they hold activations
    text = next((str(item.message) for item in said if _SAID in str(item.message)), "")
    return innermost(place_at(file, int(line), function) for file, line, function in reversed(_FRAME.findall(text)))


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
