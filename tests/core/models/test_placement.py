"""Placement snapshots, taken without changing anything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from places import Place, place_of
from torch import nn

from devexplorer.core.models import samples, walk
from devexplorer.core.models.extras import Extras
from devexplorer.core.models.walk import Held, every_tensor
from devexplorer.core.records import Backward, BuildModel, EditElement, Move, NewTensor, ObjectSnapshot, Row
from devexplorer.core.workspace.placement import snapshot


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


def row(of: ObjectSnapshot, path: str) -> Row:
    return next(row for row in of.rows if row.path == path)


def test_rows_follow_the_tree_and_name_everything_as_state_dict_does() -> None:
    model = samples.build("nested")
    seen = snapshot("nested", model)
    tensors = [row.path for row in seen.rows if row.kind in ("parameter", "buffer")]
    assert tensors == list(model.state_dict())
    assert seen.rows[0].path == ""
    assert seen.rows[0].depth == 0
    block = row(seen, "0.block 1")
    assert (block.name, block.kind, block.type) == ("block 1", "module", "Sequential")
    for before, after in zip(seen.rows, seen.rows[1:], strict=False):
        assert after.depth <= before.depth + 1


def test_totals_are_those_of_the_tensors() -> None:
    model = samples.build("mlp")
    seen = snapshot("mlp", model)
    size = sum(p.nbytes for p in model.parameters())
    assert seen.rows[0].bytes == size == seen.bytes_by_device["cpu"]
    assert seen.rows[0].elements == sum(p.numel() for p in model.parameters())
    assert seen.tensors_by_device == {"cpu": 4}
    assert row(seen, "0").bytes == 256 * 20 * 4 + 256 * 4
    assert (row(seen, "0.weight").shape, row(seen, "0.weight").dtype) == ((256, 20), "float32")
    assert row(seen, "1").devices == ()


def test_a_tied_tensor_has_a_row_under_each_name_and_counts_once() -> None:
    model = samples.build("tied")
    seen = snapshot("tied", model)
    assert row(seen, "4.weight").tied_to == "2.weight"
    assert row(seen, "4").tied_to == "2"
    assert row(seen, "2.weight").tied_to is None
    assert row(seen, "4.weight").identity == row(seen, "2.weight").identity
    assert seen.rows[0].bytes == sum(p.nbytes for p in model.parameters()) == seen.bytes_by_device["cpu"]
    assert row(seen, "4").bytes == row(seen, "2").bytes > 0  # inside its own layer it counts


def test_gradients_have_rows_below_their_parameters_and_count_per_device() -> None:
    model = samples.build("mlp")
    model(torch.randn(2, 20)).sum().backward()
    seen = snapshot("mlp", model)
    gradient = row(seen, "0.weight.grad")
    assert (gradient.kind, gradient.depth, gradient.shape) == ("gradient", row(seen, "0.weight").depth + 1, (256, 20))
    assert seen.bytes_by_device["cpu"] == 2 * seen.rows[0].bytes
    assert seen.tensors_by_device["cpu"] == 8


def test_lazy_parameters_are_shown_as_uninitialised() -> None:
    seen = snapshot("lazy", samples.build("lazy-mlp"))
    weight = row(seen, "0.weight")
    assert (weight.initialised, weight.shape, weight.bytes, weight.type) == (False, None, 0, "UninitializedParameter")
    assert weight.devices == ("cpu",)


class Hidden(nn.Module):
    """Tensors and layers in every place that PyTorch does not register."""

    def __init__(self) -> None:
        super().__init__()
        self.known = nn.Linear(2, 2)
        self.heads = [nn.Linear(2, 3), nn.Linear(2, 4)]
        self.table = {"mask": torch.ones(5), "more": (torch.zeros(1), "text")}
        self.scale = torch.ones(7)
        self.alias = [self.known, self.known.weight]
        self.endless: list[object] = [self]


def test_what_is_not_registered_is_found_and_kept_out_of_the_totals() -> None:
    model = Hidden()
    seen = snapshot("hidden", model)
    found = {row.path: row for row in seen.rows if not row.registered}
    assert set(found) == {
        "heads[0]", "heads[0].weight", "heads[0].bias", "heads[1]", "heads[1].weight", "heads[1].bias",
        "table['mask']", "table['more'][0]", "scale",
    }  # fmt: skip
    assert found["heads[0]"].kind == "module"
    assert found["heads[0]"].bytes == 36
    assert found["heads[0].weight"].kind == found["scale"].kind == "tensor"
    assert seen.bytes_by_device == {"cpu": 24}
    assert seen.rows[0].bytes == 24


def test_a_mixed_model_shows_every_device(place: Place) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).half())
    model[0].to("vgpu:1")
    seen = snapshot("mixed", model)
    assert seen.rows[0].devices == ("cpu", "vgpu:1")
    assert seen.rows[0].dtype is None
    assert row(seen, "0").dtype == "float32"
    assert seen.tensors_by_device == {"cpu": 2, "vgpu:1": 2}
    assert row(seen, "0.weight").type == "Parameter"


def test_a_tensor_shows_its_storage_values_and_place_in_autograd() -> None:
    x = torch.arange(6.0).requires_grad_()
    view, result = x.detach()[2:], x * 2
    a, b, c = snapshot("x", x).rows[0], snapshot("view", view).rows[0], snapshot("result", result).rows[0]
    assert a.storage == b.storage != c.storage
    assert (a.is_leaf, a.grad_fn, a.requires_grad) == (True, None, True)
    assert (c.is_leaf, c.grad_fn) == (False, "MulBackward0")
    assert "2." in (snapshot("x", x).values or "")
    assert snapshot("large", torch.zeros(101)).values is None


@pytest.mark.parametrize("recipe", ["mlp", "lazy-mlp", "lstm", "list-pitfall", "tied"])
@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_looking_changes_nothing(place: Place, recipe: str, device: str) -> None:
    model = samples.build(recipe).eval()
    place.workspace.add("m", model, Extras(recipe=recipe))
    place.do(Move(targets=("m",), device=device))
    if recipe == "mlp":
        place.do(Backward(target="m"))
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    random = torch.get_rng_state()
    clock = place.registry.backend("vgpu:0").clock_seconds("vgpu:0")
    allocated = place.allocated("vgpu:0")
    undo = place.workspace.history.state()

    first = snapshot("m", model)
    assert snapshot("m", model) == first
    assert place.snapshot("m").rows == first.rows
    assert place.workspace.history.state() == undo

    assert hooks == [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    assert torch.equal(torch.get_rng_state(), random)
    assert place.registry.backend("vgpu:0").clock_seconds("vgpu:0") == clock
    assert place.allocated("vgpu:0") == allocated
    assert not model.training
    assert all(row.requires_grad for row in first.rows if row.kind == "parameter")


def test_held_bytes_count_each_storage_once_and_ask_only_objects_that_changed() -> None:
    x, model = torch.zeros(100), samples.build("tied")
    weights = sum(p.nbytes for p in model.parameters())
    objects = {"x": x, "view": x[10:20], "model": model, "again": model, "lazy": samples.build("lazy-mlp")}
    held = Held()
    held.renew(objects, objects)
    assert held.now.totals == {"cpu": 400 + weights}
    assert held.sharing(["x"]) == ("view",)
    assert held.sharing(["x", "again"]) == ("model", "view")

    before = held.now.totals
    del objects["x"]
    held.renew(["x"], objects)
    assert held.now.totals == {"cpu": 400 + weights}, "the view keeps the whole storage"
    del objects["view"], objects["again"]
    held.renew(["view", "again"], objects)
    assert held.now.totals == {"cpu": weights}
    assert before == {"cpu": 400 + weights}, "what was handed out stays as it is"


def test_a_command_looks_only_at_the_objects_that_it_touches(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(BuildModel(recipe="tied"))
    looked_at: list[object] = []
    monkeypatch.setattr(walk, "every_tensor", lambda thing: looked_at.append(thing) or every_tensor(thing))
    place.do(NewTensor(shape=(3,)))
    place.do(Move(targets=("tied",), device="vgpu:1"))
    place.do(EditElement(target="x", index=(0,), value=3))
    assert set(map(id, looked_at)) == {id(place.workspace.get("x")), id(place.workspace.get("tied"))}
    assert place.held("vgpu:1") == place.snapshot("tied").bytes_by_device["vgpu:1"]
