"""The state of an optimizer and the moves of its model, whoever made the optimizer."""

from __future__ import annotations

import pytest
import torch
from places import Place
from torch import nn

from devexplorer.core.models import state_tensors
from devexplorer.core.records import Backward, BuildModel, Move, Undo


@pytest.fixture
def adam(place: Place) -> torch.optim.Optimizer:
    """Of a model on the CPU, after a step."""
    place.do(BuildModel(recipe="mlp"))
    place.do(Backward(target="mlp"))
    model = place.workspace.get("mlp")
    assert isinstance(model, nn.Module)
    made = place.workspace.extras("mlp").optimizer = torch.optim.Adam(model.parameters())
    made.step()
    return made


def state(optimizer: torch.optim.Optimizer) -> list[tuple[str, list[float]]]:
    """Where each tensor of it is, but for the counts of steps, and its values."""
    found = state_tensors(optimizer)
    return [(str(value.device), value.cpu().flatten().tolist()) for _, key, value in found if key != "step"]


def test_it_follows_a_move_that_asks_for_it_and_undo_takes_both_back(place: Place, adam: torch.optim.Optimizer) -> None:
    before = state(adam)
    words = place.answer(Move(targets=("mlp",), device="vgpu:1", optimizer=True)).words
    assert "The state of its optimizer followed, 62.08 KiB" in words
    assert state(adam) == [("vgpu:1", values) for _, values in before]
    place.do(Undo())
    assert state(adam) == before
    assert {device for row in place.snapshot("mlp").rows for device in row.devices} == {"cpu"}


def test_it_stays_behind_otherwise_and_that_is_said(place: Place, adam: torch.optim.Optimizer) -> None:
    before = state(adam)
    assert "stayed behind, 62.08 KiB on cpu" in place.answer(Move(targets=("mlp",), device="vgpu:1")).words
    assert state(adam) == before
