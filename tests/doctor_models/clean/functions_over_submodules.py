"""Functions that are kept beside the submodules that they call: a lambda, a partial, a bound method, one in a list, and
a hook."""
# input: 4x12
# train

import functools

import torch
from torch import nn


def between(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(x).tanh()


class Block(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.parts = nn.ModuleDict(
            {"into": nn.Linear(size, 2 * size), "out": nn.Linear(2 * size, size), "gate": nn.Linear(size, size)}
        )
        parts = self.parts
        self.feed = lambda x: parts["out"](parts["into"](x).relu())
        self.squash = functools.partial(between, parts["gate"])
        self.again = self.feed_twice
        self.steps = [lambda x: self.feed(x), self.squash]
        parts["out"].register_forward_hook(lambda module, given, result: result * parts["gate"](result).sigmoid())

    def feed_twice(self, x: torch.Tensor) -> torch.Tensor:
        return self.feed(self.feed(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = x + step(x)
        return self.again(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(12) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x
