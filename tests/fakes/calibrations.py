"""Calibrations for tests: made up ones, and runs that measure one."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

from devexplorer.core.benchmark.kind import kind_of
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.engine.benchmarks import make_runner
from devexplorer.core.planner.calibrate.kind import CalibrateResult, CalibrateSpec, CalibrationRow
from devexplorer.core.planner.calibrate.run import CalibrateRun
from devexplorer.core.records import Calibration, CalibrationFactor, Conditions, Spread

MEASURED_UNIX_S = 1_795_780_800.0
"""Noon of 27 November 2026 in Greenwich, which is that day everywhere but on the date line."""


def calibration(factors: dict[str, float], **more: Any) -> Calibration:
    """Of a real T4 unless `more` says otherwise."""
    known: dict[str, Any] = {
        "name": "Tesla T4 calibrated on 27 Nov 2026",
        "card": "Tesla T4",
        "measured_unix_s": MEASURED_UNIX_S,
        "device": "cuda:0",
        "uuid": "GPU-1",
        "host": "here",
        "torch_version": "2.13.0",
        "factors": tuple(
            CalibrationFactor(name=name, value=value, low=value, high=value) for name, value in factors.items()
        ),
    }
    return Calibration(**known | more)


def with_factors(profile: Profile, factors: dict[str, float]) -> Profile:
    """A card of this profile that is as much faster or slower; its name says nothing of it."""
    return replace(profile, calibration=calibration(factors, name=profile.name, card=profile.name))


def row(factor: str = "memory", value: float = 0.9, **more: Any) -> CalibrationRow:
    """A measurement."""
    known: dict[str, Any] = {
        "factor": factor,
        "text": f"a kernel of {factor}",
        "unit": "GB/s",
        "measured": Spread(270.0 * value, 260.0 * value, 280.0 * value),
        "modelled": 270.0,
        "value": Spread(value, 0.99 * value, 1.01 * value),
        "noise": 0.01,
        "iterations": 10,
        "seconds": 0.1,
        "verified": True,
    }
    return CalibrationRow(**known | more)


def result(*rows: CalibrationRow, **more: Any) -> CalibrateResult:
    """A finished run on a T4."""
    known: dict[str, Any] = {
        "run": 1,
        "spec": CalibrateSpec(device="cuda:0"),
        "card": "Tesla T4",
        "rows": rows or (row(),),
        "stopped": False,
        "simulated": False,
        "seconds": 1.0,
        "iterations": 10,
        "torch_version": "2.13.0",
        "verified": True,
    }
    return CalibrateResult(**known | more)


def conditions(**more: Any) -> Conditions:
    """Of that run."""
    known: dict[str, Any] = {
        "started_unix_s": MEASURED_UNIX_S - 10,
        "ended_unix_s": MEASURED_UNIX_S,
        "host": "here",
        "device": "cuda:0",
        "device_name": "Tesla T4",
        "uuid": "GPU-1",
    }
    return Conditions(**known | more)


def ran(run: CalibrateRun) -> CalibrateResult:
    """To its end."""
    run.prepare()
    while run.step() is not None:
        pass
    found = run.result(stopped=False)
    assert found is not None
    return found


def calibrated(registry: DeviceRegistry, device: str, seconds: float = 10.0) -> CalibrateResult:
    """Checked and measured as the engine does it."""
    spec = CalibrateSpec(device=device, seconds=seconds)
    run = make_runner(kind_of(spec).check(spec, registry), 1, registry, threading.Event())
    assert isinstance(run, CalibrateRun)
    return ran(run)
