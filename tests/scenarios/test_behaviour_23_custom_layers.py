"""Behaviour 23: custom layers: a centred one without parameters, a custom linear one, the bilinear reduction `y_k =
sum_ij W_ijk x_i x_j`."""

from __future__ import annotations

import torch
from places import Place

from devexplorer.core.records import BuildModel, Forward, NewTensor


def model_of(place: Place) -> torch.nn.Module:
    place.do(BuildModel(recipe="custom-layers", device=place.first))
    model = place.workspace.get("custom-layers")
    assert isinstance(model, torch.nn.Module)
    return model


def test_their_parameters_and_where_they_are(place: Place) -> None:
    model_of(place)
    rows = place.snapshot("custom-layers").rows
    parameters = {row.path: (row.shape, row.devices) for row in rows if row.kind == "parameter"}
    assert parameters == {
        "0.weight": ((20, 32), (place.first,)),
        "0.bias": ((32,), (place.first,)),
        "2.weight": ((32, 32, 10), (place.first,)),
    }
    centred = next(row for row in rows if row.path == "1")
    assert (centred.type, centred.devices, centred.bytes) == ("Centred", (), 0)


def test_a_layer_without_parameters_works_where_its_input_is(place: Place) -> None:
    model_of(place)
    for name, device in {"x": "cpu", "y": place.first}.items():
        place.do(NewTensor(name=name, fill="arange", shape=(6,), dtype="float32", device=device))
        place.do(Forward(target="custom-layers:1", input=name, output=f"{name} centred"))
        result = place.workspace.get(f"{name} centred")
        assert isinstance(result, torch.Tensor)
        assert str(result.device) == device
        assert result.tolist() == [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]


def test_the_results_are_those_of_the_formulas(place: Place) -> None:
    model = model_of(place)
    place.do(NewTensor(name="x", fill="randn", shape=(3, 20), device=place.first, seed=1))
    place.do(Forward(target="custom-layers", input="x", output="y"))
    x, y = place.workspace.get("x"), place.workspace.get("y")
    assert isinstance(x, torch.Tensor)
    assert isinstance(y, torch.Tensor)
    assert str(y.device) == place.first
    w, b, bilinear = (model.get_parameter(path).detach().cpu() for path in ("0.weight", "0.bias", "2.weight"))
    hidden = torch.relu(x.cpu() @ w + b)
    hidden = hidden - hidden.mean()
    expected = torch.einsum("ijk,bi,bj->bk", bilinear, hidden, hidden)
    assert torch.allclose(y.cpu(), expected, atol=1e-4, rtol=1e-4)


def test_a_second_device_is_one_move_away(place: Place) -> None:
    if place.second is None:
        assert place.offers_virtual_gpus(BuildModel(recipe="custom-layers", device="cuda:0"))
        return
    place.do(BuildModel(recipe="custom-layers", device=place.second))
    assert not place.answer(Forward(target="custom-layers")).failed
