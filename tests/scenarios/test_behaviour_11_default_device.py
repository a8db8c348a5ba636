"""Behaviour 11: a model whose forward creates a tensor on the default device: the doctor names the line."""

from __future__ import annotations

import inspect

import pytest
from places import Place

from devexplorer.core.models.samples import custom
from devexplorer.core.records import BuildModel, Check, Checked, Diagnosis, Forward

MODEL = "noise-pitfall"
pytestmark = pytest.mark.usefixtures("warm_processes")


def line_of(text: str) -> int:
    """Number of the line of the sample models' file that holds this text."""
    lines = inspect.getsource(custom).splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def diagnosis(place: Place, device: str, target: str = MODEL) -> Diagnosis:
    """The diagnosis of the model on a device."""
    (checked,) = place.do(Check(target=target, device=device)).events
    assert isinstance(checked, Checked)
    return checked.diagnosis


def test_the_doctor_names_the_line(place: Place) -> None:
    place.do(BuildModel(recipe=MODEL, device=place.first))
    if place.second is None:
        assert place.offers_virtual_gpus(Check(target=MODEL, device="cuda:0"))
        return
    found = diagnosis(place, place.first)
    (problem,) = found.problems
    assert problem.rule == "default-device"
    assert problem.file.endswith("custom.py")
    assert problem.line == line_of("noise = torch.randn(x.shape)")
    assert "device=x.device" in problem.fix
    assert found.simulated == place.first.startswith("vgpu")


def test_the_failing_forward_names_the_line_and_offers_the_doctor(place: Place) -> None:
    if place.second is None:
        place.do(BuildModel(recipe=MODEL))
        assert not place.answer(Forward(target=MODEL)).failed, "on the CPU it works"
        return
    place.do(BuildModel(recipe=MODEL, device=place.first))
    answer = place.answer(Forward(target=MODEL))
    assert answer.failed
    assert f"line {line_of('x + 0.1 * noise')} of custom.py" in answer.words
    assert any(offer.command == Check(target=MODEL, device=place.first) for offer in answer.offers)


def test_a_model_without_the_pitfall_is_clean(place: Place) -> None:
    place.do(BuildModel(recipe="custom-layers", device=place.first))
    if place.second is not None:
        assert diagnosis(place, place.first, "custom-layers").clean


def test_checking_changes_nothing(place: Place) -> None:
    place.do(BuildModel(recipe=MODEL, device=place.first))
    before = place.snapshot(MODEL)
    if place.second is not None:
        diagnosis(place, place.second)
    assert place.snapshot(MODEL) == before
