"""Models built from blocks: perceptrons, containers, and the ways to hold layers. Built on the jobs thread."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

FEATURES, HIDDEN, CLASSES = 20, 256, 10


def mlp() -> nn.Module:
    """Linear 20 → 256, ReLU, Linear 256 → 10: 7,946 parameters."""
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


def lazy_mlp() -> nn.Module:
    """The same perceptron, whose shapes are found out by the first forward."""
    return nn.Sequential(nn.LazyLinear(HIDDEN), nn.ReLU(), nn.LazyLinear(CLASSES))


class MySequential(nn.Module):
    """What `nn.Sequential` does, in five lines: registers blocks in order and runs one after the other."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        for index, block in enumerate(blocks):
            self.add_module(str(index), block)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.children():
            x = block(x)
        return x


def my_sequential() -> nn.Module:
    """The perceptron in a custom Sequential."""
    return MySequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))


class Parallel(nn.Module):
    """Two branches read the same input; their outputs are concatenated along the last dimension."""

    def __init__(self, left: nn.Module, right: nn.Module) -> None:
        super().__init__()
        self.left = left
        self.right = right

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.left(x), self.right(x)), dim=-1)


def parallel() -> nn.Module:
    """A narrow and a wide branch side by side, then a head."""
    narrow = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU())
    wide = nn.Sequential(nn.Linear(FEATURES, 48), nn.Tanh())
    return nn.Sequential(Parallel(narrow, wide), nn.Linear(64, CLASSES))


def _block() -> nn.Sequential:
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, FEATURES), nn.ReLU())


def nested() -> nn.Module:
    """Blocks inside a block, named with a space; such a part is reached with `get_submodule("0.block 1")`."""
    blocks = nn.Sequential()
    for index in range(4):
        blocks.add_module(f"block {index}", _block())
    return nn.Sequential(blocks, nn.Linear(FEATURES, CLASSES))


class Repeated(nn.Module):
    """One block run several times: its parameters exist once, however often it runs."""

    def __init__(self, block: nn.Module, times: int) -> None:
        super().__init__()
        self.block = block
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = self.block(x)
        return x


def repeated() -> nn.Module:
    """A block that runs three times, then a head."""
    return nn.Sequential(Repeated(_block(), 3), nn.Linear(FEATURES, CLASSES))


class Stack(nn.Module):
    """Holds three layers in an `nn.ModuleList` and runs them itself: the list registers them, it does not run."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(FEATURES, FEATURES) for _ in range(3))
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return cast(Tensor, self.head(x))


class PlainList(nn.Module):
    """The pitfall: three layers in a plain Python list run, but `parameters()`, `.to()` and `state_dict()` do not see
    them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(FEATURES, FEATURES) for _ in range(3)]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def tied() -> nn.Module:
    """One layer used in two places: one Parameter, two names."""
    shared = nn.Linear(HIDDEN, HIDDEN)
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN), nn.ReLU(), shared, nn.ReLU(), shared, nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    )


class TwoTowers(nn.Module):
    """Two towers over two inputs and a score; each tower can be on its own device once hops are inserted."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 32))
        self.item = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 32))

    def forward(self, query: Tensor, item: Tensor) -> Tensor:
        return cast(Tensor, (self.query(query) * self.item(item)).sum(dim=-1))
