"""What macOS says of an Apple GPU. Takes about a second, so it is asked on demand only; any thread, no torch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence

from devexplorer.core.records import DeviceDetails

COMMAND = ("/usr/sbin/system_profiler", "SPDisplaysDataType", "-json")
NOT_TOLD = "macOS tells it to administrators only (powermetrics)"
_SHOWN = {
    "sppci_model": "chip",
    "sppci_cores": "GPU cores",
    "spdisplays_mtlgpufamilysupport": "Metal",
    "spdisplays_vendor": "maker",
}
"""Key of system_profiler's document -> what it is called here."""


def run(command: Sequence[str]) -> str:
    """The program's output; OSError or SubprocessError where there is none."""
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout


def details(device: str, time_unix_s: float, run: Callable[[Sequence[str]], str] = run) -> DeviceDetails:
    """Chip, number of cores and Metal version, as far as the system tells; power, heat and clocks are none of them."""
    more: dict[str, str] = {}
    try:
        (first, *_) = json.loads(run(COMMAND))["SPDisplaysDataType"]
        for key, name in _SHOWN.items():
            if key in first:
                more[name] = str(first[key]).removeprefix("spdisplays_").removeprefix("sppci_vendor_")
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        pass  # not macOS, or a document of another form: nothing is known then
    missing = dict.fromkeys(("temperature_c", "power_w", "sm_clock_mhz", "utilization_percent"), NOT_TOLD)
    return DeviceDetails(device=device, time_unix_s=time_unix_s, more=more, missing=missing)
