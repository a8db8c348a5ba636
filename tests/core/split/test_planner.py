from __future__ import annotations

import importlib
import itertools

import pytest
from torch import nn

from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.models import samples
from devexplorer.core.split import planner
from devexplorer.core.split.draft import even_budget
from devexplorer.core.split.planner import ModelBlock, blocks_of

LAYER = 4 * (8 * 8 + 8)
"""Bytes of one layer of `chain`."""


def chain(layers: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers)))


def tied_chain() -> nn.Module:
    model = chain(4)
    model[3].weight = model[0].weight  # type: ignore[operator, union-attr, assignment]
    return model


def blocks(model: nn.Module) -> list[ModelBlock]:
    return blocks_of(model)[0]


def answers(monkeypatch: pytest.MonkeyPatch, *numbers: object) -> None:
    """Let accelerate answer this: a number per block, counted from 1 as it sees the devices."""
    accelerate = importlib.import_module("accelerate")
    found = {f"block{index}": number for index, number in enumerate(numbers) if number is not None}
    monkeypatch.setattr(accelerate, "infer_auto_device_map", lambda *_, **__: found)


def test_devices_are_filled_in_the_order_of_their_budgets():
    proposal = planner.propose("m", blocks(chain(5)), {"vgpu:1": 2 * LAYER, "vgpu:0": 2 * LAYER, "cpu": 10 * LAYER})
    assert proposal.devices == ["vgpu:1", "vgpu:1", "vgpu:0", "vgpu:0", "cpu"]
    assert proposal.warnings == []


def test_the_first_device_is_filled_to_its_budget_and_not_kept_free_for_a_layer_from_the_host():
    proposal = planner.propose("m", blocks(chain(2)), {"vgpu:0": 2 * LAYER, "cpu": LAYER})
    assert proposal.devices == ["vgpu:0", "vgpu:0"]


def test_tied_blocks_come_together():
    proposal = planner.propose("m", blocks(tied_chain()), {"vgpu:0": 2 * LAYER, "vgpu:1": 2 * LAYER})
    assert proposal.devices == ["vgpu:0", "vgpu:1", "vgpu:1", "vgpu:0"]


def test_blocks_that_accelerate_leaves_over_are_placed_and_that_is_said(monkeypatch: pytest.MonkeyPatch):
    answers(monkeypatch, 1, "disk", None)
    proposal = planner.propose("m", blocks(chain(3)), {"vgpu:0": 2 * LAYER, "vgpu:1": 2 * LAYER})
    assert proposal.devices == ["vgpu:0", "vgpu:0", "vgpu:1"]
    assert "found no room for 2 blocks" in proposal.warnings[0]


def test_an_overfull_device_is_taken_down_to_its_budget_and_that_is_said(monkeypatch: pytest.MonkeyPatch):
    answers(monkeypatch, 1, 1, 1)
    proposal = planner.propose("m", blocks(chain(3)), {"vgpu:0": 2 * LAYER, "vgpu:1": 2 * LAYER})
    assert proposal.devices == ["vgpu:0", "vgpu:0", "vgpu:1"]
    assert "too much on vgpu:0" in proposal.warnings[0]


def test_ties_that_accelerate_would_part_are_put_together_and_that_is_said(monkeypatch: pytest.MonkeyPatch):
    answers(monkeypatch, 1, 1, 2, 2)
    proposal = planner.propose("m", blocks(tied_chain()), {"vgpu:0": 3 * LAYER, "vgpu:1": 3 * LAYER})
    assert proposal.devices == ["vgpu:0", "vgpu:0", "vgpu:1", "vgpu:0"]
    assert "parted tied blocks" in proposal.warnings[0]


def test_where_filling_in_order_leaves_something_over_the_largest_goes_first():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8))
    sizes = [block.own_bytes for block in blocks(model)]
    budgets = {"vgpu:0": sizes[1], "vgpu:1": sizes[0] + sizes[2]}
    assert planner.propose("m", blocks(model), budgets).devices == ["vgpu:1", "vgpu:0", "vgpu:1"]


def test_budgets_that_cannot_hold_the_model_are_refused_with_the_bytes():
    with pytest.raises(
        BadInput, match=r"'m' needs 864 B and the budgets together are 700 B: 400 B on vgpu:0, 300 B on cpu"
    ):
        planner.propose("m", blocks(chain(3)), {"vgpu:0": 400, "cpu": 300})
    with pytest.raises(BadInput, match=r"'1' needs 288 B, and no device has more than 200 B of its budget left"):
        planner.propose("m", blocks(chain(2)), {"vgpu:0": LAYER, "vgpu:1": 200, "cpu": 200})
    with pytest.raises(BadInput, match=r"'0' and '3', which share a tensor and stay together, need 320 B"):
        planner.propose("m", blocks(tied_chain()), {f"vgpu:{index}": 300 for index in range(4)})


def test_without_accelerate_the_command_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install .devexplorer\[split\]."):
        planner.propose("m", blocks(chain(2)), {"cpu": 10 * LAYER})


def even(parts: list[ModelBlock], devices: list[str]) -> dict[str, int]:
    return dict.fromkeys(devices, even_budget(planner.Groups(parts).bytes, len(devices)))


def test_even_budgets_are_as_small_as_they_can_be():
    parts = blocks(chain(5))
    budgets = even(parts, ["vgpu:0", "vgpu:1"])
    assert budgets == {"vgpu:0": 3 * LAYER, "vgpu:1": 3 * LAYER}
    assert planner.propose("m", parts, budgets).devices == ["vgpu:0"] * 3 + ["vgpu:1"] * 2


@pytest.mark.parametrize("recipe", ["mlp", "nested", "two-towers", "lenet", "transformer", "lstm", "tied", "resnet18"])
@pytest.mark.parametrize("devices", [2, 3])
def test_every_plan_is_complete_within_its_budgets_and_keeps_ties(recipe: str, devices: int):
    parts = blocks(samples.meta(recipe))
    names = [f"vgpu:{index}" for index in range(devices)]
    budgets = even(parts, names)
    proposal = planner.propose(recipe, parts, budgets)
    assert len(proposal.devices) == len(parts)
    for device, budget in budgets.items():
        assert (
            sum(block.own_bytes for block, chosen in zip(parts, proposal.devices, strict=True) if chosen == device)
            <= budget
        )
    changes = sum(one != other for one, other in itertools.pairwise(proposal.devices))
    assert changes < devices
