"""What is read beside a benchmark: clocks, power, temperature and throttle reasons of the NVIDIA cards under test, for its conditions.

Main thread; the cards are read on the sampler's threads, which end with the context. Where no such card is measured, nothing runs beside.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from types import TracebackType

from devexplorer.core.benchmark.conditions import ConditionsWatch, here
from devexplorer.core.benchmark.figures import Conditions
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.nvml import Nvml
from devexplorer.core.records.benchmark import BenchResult
from devexplorer.core.records.devices import DeviceDetails, DeviceInfo, DeviceSample
from devexplorer.core.records.messages import BenchPreparing, BenchStarted, EngineReady, Event
from devexplorer.core.telemetry.sampler import Sampler
