"""What all kinds of benchmarks have in common. Plain frozen records, made on any thread."""

from __future__ import annotations

import msgspec

from devexplorer.core.records.base import Record


class Spread(msgspec.Struct, frozen=True):
    """Median and the 20th and 80th percentile of one quantity over the iterations (or blocks) of a run."""

    median: float
    p20: float
    p80: float


class BaseResult(Record, omit_defaults=True):
    """What every result has."""

    run: int
    stopped: bool
    """True when it was stopped, or ended by an error, before its time; what was measured until then is kept."""
    simulated: bool
    seconds: float
    """Measured time on the device's clock, warm-up left out."""
    iterations: int = 0
    threads: int | None = None
    """CPU only."""
    torch_version: str = ""
    verified: bool | None = None
    """Whether values were compared with a higher precision (or bit by bit) and agreed; None: not compared."""
    failure: str | None = None
    """Why it ended before its time, where it was not the user who stopped it."""
