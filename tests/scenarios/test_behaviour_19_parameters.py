"""Behaviour 19: parameters are read by name and by index, nested blocks included: names as in `state_dict`, shapes,
values, gradients."""

from __future__ import annotations

from places import Place
from torch import nn

from devexplorer.core.records import Backward, BuildModel, EditElement


def test_names_shapes_values_and_gradients(place: Place) -> None:
    place.do(BuildModel(recipe="nested", device=place.first))
    model = place.workspace.get("nested")
    assert isinstance(model, nn.Module)
    rows = {row.path: row for row in place.snapshot("nested").rows if row.kind == "parameter"}
    assert list(rows) == list(model.state_dict())
    for name, value in model.state_dict().items():
        assert rows[name].shape == tuple(value.shape)
        assert rows[name].bytes == value.nbytes
    assert rows["0.block 1.0.weight"].name == "weight"
    assert not [row for row in place.snapshot("nested").rows if row.kind == "gradient"]

    answer = place.answer(Backward(target="nested"))
    assert "a gradient in 18 parameters" in answer.words
    gradients = {row.path: row for row in place.snapshot("nested").rows if row.kind == "gradient"}
    assert list(gradients) == [f"{name}.grad" for name in rows]
    assert all(gradient.shape == rows[path.removesuffix(".grad")].shape for path, gradient in gradients.items())
    assert {gradient.devices for gradient in gradients.values()} == {(place.first,)}


def test_one_element_is_edited_and_seen(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    answer = place.answer(EditElement(target="mlp:2.bias", index=(3,), value=0.25))
    model = place.workspace.get("mlp")
    assert isinstance(model, nn.Module)
    assert model.get_parameter("2.bias")[3].item() == 0.25
    assert answer.title == "2.bias[3] is now 0.25"
    assert 'mlp.get_parameter("2.bias")[3] = 0.25' in answer.code
