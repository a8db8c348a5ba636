"""Which line of forward made what fails in backward: runs both once more while autograd notes the lines. The calling
thread."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable

import torch

from devexplorer.core.isolation.source_location import SourceLocation, innermost, place_at

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
