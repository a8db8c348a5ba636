"""Behaviour 31: `.data` in forward: for autograd the output does not depend on the parameters; which ones, and the
line, are named."""

from __future__ import annotations

import pytest
from places import Place

from devexplorer.core.records import Backward, BuildModel, Check, Checked, NewTensor

pytestmark = pytest.mark.usefixtures("warm_processes")


def test_parameters_without_a_gradient_are_named_with_the_line(place: Place) -> None:
    place.do(BuildModel(recipe="data-pitfall", device=place.first))
    answer = place.answer(Backward(target="data-pitfall"))
    assert not answer.failed
    assert "a gradient in 2 parameters" in answer.words
    assert "0.weight and 0.bias took part and got no gradient" in answer.words
    assert "self.weight.data" in answer.words
    assert "of custom.py, DataLinear)" in answer.words
    assert [offer.command for offer in answer.offers] == [Check(target="data-pitfall", device=place.first, train=True)]
    gradients = [row.path for row in place.snapshot("data-pitfall").rows if row.kind == "gradient"]
    assert gradients == ["1.weight.grad", "1.bias.grad"]


def test_the_doctor_explains_it_with_the_fix(place: Place) -> None:
    place.do(BuildModel(recipe="data-pitfall", device=place.first))
    (checked,) = place.do(Check(target="data-pitfall", device=place.first, train=True)).events
    assert isinstance(checked, Checked)
    (problem,) = checked.diagnosis.problems
    assert problem.rule == "cut-from-autograd"
    assert problem.path.startswith("0")
    assert problem.file.endswith("custom.py")
    assert problem.message == ".data takes values without their history: 0.weight and 0.bias get no gradient."
    assert "Use the value itself" in problem.fix


def test_where_nothing_requires_a_gradient_the_refusal_says_why(place: Place) -> None:
    place.do(BuildModel(recipe="data-pitfall", device=place.first))
    place.do(NewTensor(name="x", fill="rand", shape=(2, 20), device=place.first))
    answer = place.answer(Backward(target="data-pitfall:0", input="x"))
    assert answer.failed
    assert "does not depend on anything that requires a gradient" in answer.words
    assert "self.weight.data" in answer.words


def test_a_model_without_the_pitfall_is_not_suspected(place: Place) -> None:
    place.do(BuildModel(recipe="custom-layers", device=place.first))
    answer = place.answer(Backward(target="custom-layers"))
    assert "a gradient in 3 parameters" in answer.words
    assert "no gradient" not in answer.words


def test_on_a_second_device_it_is_the_same(place: Place) -> None:
    if place.second is None:
        assert place.offers_virtual_gpus(BuildModel(recipe="data-pitfall", device="cuda:0"))
        return
    place.do(BuildModel(recipe="data-pitfall", device=place.second))
    assert "0.weight and 0.bias took part" in place.answer(Backward(target="data-pitfall")).words
