"""A card is calibrated and planned with: its own factors are measured, kept, and change what Fit says. A virtual GPU is
as the model has it; the CPU, of which there is no model, is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes.calibrations import calibrated, conditions
from places import Place

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import parse_planned
from devexplorer.core.planner.calibrate.store import CalibrationStore, calibration_of
from devexplorer.core.virtual.device.cost import Kind, Roofline, Work


def test_a_card_has_factors_of_its_own(place: Place, tmp_path: Path) -> None:
    if place.kind == "cpu":
        with pytest.raises(BadInput, match="cpu cannot be calibrated"):
            calibrated(place.registry, "cpu")
        return
    result = calibrated(place.registry, place.first)
    assert (result.verified, result.simulated) == (True, place.kind == "vgpu")
    store = CalibrationStore(tmp_path)
    kept = store.save(calibration_of(result, conditions()))
    [card] = parse_planned(kept.name, store.load())
    [plain] = parse_planned(result.card)
    addition = Work(Kind.ELEMENTWISE, 0, 3 << 28)
    ratio = Roofline(plain).seconds(addition) / Roofline(card).seconds(addition)
    assert ratio == pytest.approx(kept.values["memory"], rel=0.05)
    assert all(factor.low <= factor.value <= factor.high for factor in kept.factors)
    if place.kind == "vgpu":
        assert kept.values == pytest.approx(dict.fromkeys(kept.values, 1.0), rel=1e-6)
