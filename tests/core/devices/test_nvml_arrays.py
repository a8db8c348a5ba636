"""A driver that writes one entry beyond the buffer does no harm, neither to values nor to the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.nvml_library import NvmlLibrary

from devexplorer.core.devices.nvml import query

READ_EVERYTHING = """
import gc
from devexplorer.core.devices.nvml.library import Nvml

nvml = Nvml(hidden_processes=lambda: False, driver_cards=frozenset)
assert nvml.start(), nvml.problems
cards = nvml.cards()
for _ in range(3):
    for card in cards:
        slow = nvml.read_slow(card)
        details = nvml.read_details(card, device="x", time_unix_s=1.0)
    gc.collect()
assert all(use.pid < 2**31 for use in slow.processes), slow.processes
print(len(slow.processes), slow.energy_j is not None, details.retired_pages_single_bit, details.cpus)
print(len(nvml.topology(cards, {}).links))
assert nvml.close()
"""


def test_a_driver_that_writes_behind_the_end_of_lists_damages_nothing(nvml_library_path: Path) -> None:
    """With PYTHONMALLOC=debug the interpreter checks guard bytes after each block, and aborts if they changed."""
    found = {}
    for overrun in ("0", "1"):
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(nvml_library_path.parent),
            "PYTHONMALLOC": "debug",
            "FAKE_NVML_OVERRUN": overrun,
            "FAKE_NVML_MODELS": "h200,t4",
        }
        done = subprocess.run(
            [sys.executable, "-c", READ_EVERYTHING],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found[overrun] = done.stdout
    assert found["1"] == found["0"] == "2 True 2 0-15,32-47\n1\n"


def test_lists_are_those_of_pynvml(nvml_library: NvmlLibrary) -> None:
    nvml_library.reset(["t4"])
    nvml_library.processes(0, [(41, 1 << 20), (42, 2**64 - 1)])
    with nvml_library.in_pynvml() as pynvml:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        ours = query.running_processes("Compute", 3)(pynvml, handle)
        theirs = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
        assert [(one.pid, one.usedGpuMemory) for one in ours] == [(one.pid, one.usedGpuMemory) for one in theirs]
        assert query.nvmlDeviceGetRetiredPages(pynvml, handle, 0) == pynvml.nvmlDeviceGetRetiredPages(handle, 0)
        assert list(query.affinity(pynvml, "nvmlDeviceGetCpuAffinity", handle, 4)) == list(
            pynvml.nvmlDeviceGetCpuAffinity(handle, 4)
        )
        nvml_library.processes(0, [])
        assert query.running_processes("Compute", 3)(pynvml, handle) == []
        with pytest.raises(pynvml.NVMLError):
            query.nvmlDeviceGetFieldValues(pynvml, None, [(1, 0)])
        pynvml.nvmlShutdown()
