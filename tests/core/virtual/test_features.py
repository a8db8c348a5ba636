"""Over a hundred features of PyTorch on a virtual GPU against the CPU, and the table of them in
docs/virtual_gpus.md."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from virtual_features import FEATURES, status
from virtual_features.table import collect, documented

collect()
pytestmark = [
    pytest.mark.usefixtures("virtual"),
    pytest.mark.filterwarnings(
        "ignore"
    ),  # torch's own, on the CPU as well: deprecations, prototypes, a profiler without a GPU
]
DOCUMENTED = documented()


@pytest.fixture(autouse=True)
def no_progress_thread(monkeypatch):
    """torch's compiler shows progress with tqdm if installed, whose thread would stay."""
    if importlib.util.find_spec("tqdm") is not None:
        monkeypatch.setattr(importlib.import_module("tqdm").tqdm, "monitor_interval", 0)


@pytest.mark.parametrize("name", FEATURES)
def test_a_feature_is_as_the_page_says(name):
    state = torch.get_rng_state()
    found = status(FEATURES[name])
    torch.set_rng_state(state)
    if "module 'torch" in found and "has no attribute" in found:
        pytest.skip(f"torch {torch.__version__} does not have it")
    assert found == "equal" or found.startswith("refused: "), found
    assert found == DOCUMENTED.get(name)
    assert torch.vgpu.current_device() == 0, "the current device is put back"


def test_the_page_lists_every_feature_and_nothing_else():
    assert list(DOCUMENTED) == list(FEATURES)
    assert len(FEATURES) >= 100


def test_a_difference_is_noticed():
    from virtual_features import DEVICE, Feature

    assert status(Feature("", "", lambda device: torch.ones(2, device=device) * (device == "cpu"))).startswith(
        "different: Tensor-likes"
    )
    assert status(Feature("", "", lambda device: torch.ones(2))) == "different: a result is on cpu"
    assert (
        status(Feature("", "", lambda device: torch.ones(2, device=device).view(1, 2 if device == "cpu" else 1, -1)))
        != "equal"
    )
    assert status(Feature("", "", lambda device: [1] if device == DEVICE else [2])) == "different: 1 instead of 2"
    assert status(Feature("", "", lambda device: 1 / (device == "cpu"))) == "refused: division by zero"
