"""How busy the cores are, between two readings. One thread; no torch.

On Linux straight from /proc/stat: psutil, which says the same, takes a sixth of the time in which `watch --count 1` is
done to import.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from devexplorer.core.devices.kept_file import KeptFile

LEAST_S = 0.03
"""Over less time the system's clock, which ticks every 1 to 10 ms, has too few steps."""
SHORT_S = 0.5
"""In a first reading over less time what this process did is left out: its own start is not what anybody asks for."""


class CpuBusy:
    """Share of all cores that was busy since the last call, or since this was made; None where that is too short, or
    not told."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = KeptFile(stat)
        self._then = self._now()
        self._psutil = None
        if self._then is None:
            import psutil

            self._psutil = psutil
            psutil.cpu_percent()
        self._at = time.monotonic()
        self._own: float | None = time.process_time()

    def __call__(self) -> float | None:
        """The share in percent."""
        at = time.monotonic()
        passed_s = at - self._at
        if passed_s < LEAST_S:
            return None
        spent_s = time.process_time() - self._own if self._own is not None and passed_s < SHORT_S else 0.0
        self._at, self._own = at, None
        if self._psutil is not None:
            return float(self._psutil.cpu_percent())
        then, now = self._then, self._now()
        self._then = now
        if then is None or now is None or now[1] <= then[1]:
            return None
        busy, whole = now[0] - then[0], now[1] - then[1]
        if spent_s:
            busy -= (
                spent_s * whole / passed_s / max(os.cpu_count() or 1, 1)
            )  # in the file's ticks, of which a core has so many a second
        return min(max(100 * busy / whole, 0.0), 100.0)

    def _now(self) -> tuple[float, float] | None:
        """Busy and all time of all cores since the start, in the system's ticks; guests are counted among the
        others."""
        label, *numbers = self._stat.start().partition(b"\n")[0].split() or (b"",)
        try:
            values = [int(number) for number in numbers[:8]]
        except ValueError:
            return None
        if label != b"cpu" or len(values) < 5:
            return None
        whole = sum(values)
        return whole - values[3] - values[4], whole  # idle, and waiting for disks
