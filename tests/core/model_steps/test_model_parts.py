"""The parts of a run of model steps: inputs, clones, and FLOP on `meta`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from devexplorer.core.model_steps.run import clone_model, count_flop, sample_of
from devexplorer.core.models import samples
from devexplorer.core.models.run import total


@pytest.mark.parametrize("name", samples.recipes())
def test_each_sample_model_is_recognised_and_gets_the_input_it_takes(name: str) -> None:
    sample = sample_of(samples.meta(name), 3)
    assert sample is not None
    expected = samples.find(name).sample(3)
    assert [(one.shape, one.dtype) for one in sample] == [(one.shape, one.dtype) for one in expected]


def test_a_twin_is_tied_where_its_model_is_and_shares_no_memory() -> None:
    model = samples.build("tied")
    copied = clone_model(model, lambda tensor: torch.empty_like(tensor, device="meta"))
    assert [name for name, _ in copied.named_parameters()] == [name for name, _ in model.named_parameters()]
    assert len(copied.state_dict()) == len(model.state_dict()) > len(list(model.parameters()))
    assert all(parameter.is_meta and isinstance(parameter, nn.Parameter) for parameter in copied.parameters())
    assert not any(parameter.is_meta for parameter in model.parameters())


def test_counting_leaves_the_model_as_it_was() -> None:
    model = samples.build("resnet18")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert count_flop(model, samples.find("resnet18").sample(1), 2, backward=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_layers_that_run_as_one_kernel_are_counted_all_the_same(name: str) -> None:
    model = samples.build(name).eval()
    one = samples.find(name).sample(1)
    elements = sum(p.numel() for path, p in model.named_parameters() if p.dim() == 2 and "embed" not in path)
    counted = count_flop(model, one, 1, backward=False)
    assert counted is not None
    assert (
        counted > elements * one[0].shape[1]
    )  # each weight is used at each of the places, in a multiplication and an addition
    assert total(model(*one)) is not None
