"""The tabs of the window, from left to right: one line each. `layouts.py` says where they are. Main thread only."""

from __future__ import annotations

from typing import Any

from devexplorer.gui.actions import TabSpec
from devexplorer.gui.alerts import tab as alerts
from devexplorer.gui.benchmark import tab as benchmark
from devexplorer.gui.devices import tab as devices
from devexplorer.gui.doctor import tab as doctor
from devexplorer.gui.experiments import tab as experiments
from devexplorer.gui.files import tab as files
from devexplorer.gui.fit import tab as fit
from devexplorer.gui.fleet import tab as fleet
from devexplorer.gui.history import tab as history
from devexplorer.gui.learn import tab as learn
from devexplorer.gui.log import tab as log
from devexplorer.gui.machines import tab as machines
from devexplorer.gui.memory import tab as memory
from devexplorer.gui.objects import tab as objects
from devexplorer.gui.roofline import tab as roofline
from devexplorer.gui.split import tab as split
from devexplorer.gui.topology import tab as topology

TABS: tuple[TabSpec[Any], ...] = (
    objects.TAB,
    split.TAB,
    doctor.TAB,
    fit.TAB,
    benchmark.TAB,
    history.TAB,
    roofline.TAB,
    experiments.TAB,
    devices.DETAILS,
    memory.TAB,
    devices.PROCESSES,
    topology.TAB,
    machines.TAB,
    fleet.TAB,
    alerts.TAB,
    learn.TAB,
    files.TAB,
    log.TAB,
)
