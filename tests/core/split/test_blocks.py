from __future__ import annotations

import pytest
from torch import nn

from devexplorer.core.models import samples
from devexplorer.core.split.planner import ModelBlock, blocks_of, ties


def paths(model: nn.Module, largest_bytes: int | None = None) -> list[str]:
    return [block.path for block in blocks_of(model, largest_bytes)[0]]


@pytest.mark.parametrize("recipe", [name for name in samples.recipes() if not name.startswith("vgg")])
def test_blocks_hold_every_tensor_and_count_it_once(recipe: str):
    model = samples.build(recipe) if recipe == "lazy-mlp" else samples.meta(recipe)
    blocks, forced = blocks_of(model)
    held = {id(tensor) for block in blocks for tensor in block.tensors}
    tensors = [*model.parameters(), *model.buffers()]
    assert held == {id(tensor) for tensor in tensors}
    if recipe != "lazy-mlp":
        assert sum(block.own_bytes for block in blocks) == sum(tensor.nbytes for tensor in tensors)
    order = [path for path, _ in model.named_modules()]
    assert [order.index(block.path) for block in blocks] == sorted(order.index(block.path) for block in blocks)
    assert not forced


def test_containers_are_cut_and_layers_of_a_stack_are_not():
    assert paths(samples.meta("resnet18")) == [
        "conv1", "bn1", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer3.0", "layer3.1", "layer4.0", "layer4.1",
        "fc",
    ]  # fmt: skip
    assert paths(samples.meta("nested"))[:3] == ["0.block 0.0", "0.block 0.2", "0.block 1.0"]
    assert paths(samples.meta("parallel")) == ["0", "1"]  # it concatenates what its branches return


def test_what_a_cut_module_holds_itself_is_a_block_of_its_own():
    blocks, _ = blocks_of(samples.meta("transformer"))
    assert [(block.path, block.whole) for block in blocks] == [
        ("", False),
        ("embedding", True),
        ("encoder.layers.0", True),
        ("encoder.layers.1", True),
        ("head", True),
    ]
    assert blocks[0].own_bytes == 32 * 64 * 4


def test_a_model_without_parts_is_one_block():
    assert paths(nn.Linear(2, 3)) == [""]
    assert paths(nn.Sequential(nn.ReLU())) == []
    assert paths(nn.Sequential(nn.ReLU(), nn.Linear(2, 3))) == ["1"]


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))


def test_a_wrapper_is_not_what_is_split():
    assert paths(Wrapper(samples.meta("resnet18")))[:2] == ["inner.conv1", "inner.bn1"]


def test_a_module_that_may_add_up_its_parts_stays_whole_unless_it_is_too_large():
    model = nn.Sequential(nn.Linear(4, 4), Residual())
    assert paths(model) == ["0", "1"]
    blocks, forced = blocks_of(model, largest_bytes=100)
    assert [block.path for block in blocks] == ["0", "1.net.0", "1.net.2"]
    assert forced == ["1"]
    assert paths(nn.Sequential(nn.MultiheadAttention(8, 2), nn.ReLU()), 10) == [
        "0"
    ]  # it holds a weight itself and reads that of a part


class Experts(nn.Module):
    """A layer that adds up what its experts say."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))


def test_a_layer_of_a_stack_stays_whole_also_when_it_holds_a_list_itself():
    assert paths(nn.Sequential(nn.Linear(4, 4), nn.ModuleList(Experts() for _ in range(2)))) == ["0", "1.0", "1.1"]
    assert paths(nn.Sequential(nn.Linear(4, 4), Experts())) == ["0", "1.experts.0", "1.experts.1"]


class Kept(nn.Module):
    _no_split_modules = ("Kept",)

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))


def test_no_split_modules_are_obeyed():
    assert paths(nn.ModuleDict({"a": Kept(), "b": nn.Linear(2, 2)})) == ["a", "b"]


def test_ties_join_blocks_and_a_shared_tensor_counts_in_the_first():
    first, second, third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    third.weight = first.weight
    blocks, _ = blocks_of(nn.Sequential(first, second, third))
    assert ties(blocks) == [(0, 2)]
    assert [block.own_bytes for block in blocks] == [80, 80, 16]
    assert ties([ModelBlock("", first, (), 0)]) == []


def test_chained_ties_are_one_group():
    layers = [nn.Linear(4, 4) for _ in range(4)]
    layers[2].weight = layers[0].weight
    layers[2].bias = layers[1].bias
    assert ties(blocks_of(nn.Sequential(*layers))[0]) == [(0, 1, 2)]
