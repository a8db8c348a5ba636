"""The tabs of the window, from left to right: the kernel's, and those that features name. Main thread only."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from devexplorer.core.feature import named
from devexplorer.gui.actions import TabSpec
from devexplorer.gui.benchmark import tab as benchmark
from devexplorer.gui.devices import tab as devices
from devexplorer.gui.files import tab as files
from devexplorer.gui.log import tab as log
from devexplorer.gui.objects import tab as objects

_TABS: tuple[TabSpec[Any], ...] = (
    objects.TAB,
    benchmark.TAB,
    devices.DETAILS,
    devices.PROCESSES,
    files.TAB,
    log.TAB,
)
TABS = tuple(sorted((*_TABS, *named("tab")), key=attrgetter("order")))
