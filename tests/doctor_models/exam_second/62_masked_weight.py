import torch
from torch import nn
from torch.nn.utils import parametrize


class Masked(nn.Module):
    """MADE: an output sees only the inputs before it."""

    def __init__(self, mask):
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, weight):
        return weight * self.mask


class MADE(nn.Module):
    def __init__(self, dim=8, hidden=24):
        super().__init__()
        self.a = nn.Linear(dim, hidden)
        self.b = nn.Linear(hidden, dim)
        order = torch.arange(dim)
        degree = torch.arange(hidden) % (dim - 1)
        parametrize.register_parametrization(self.a, "weight", Masked((degree[:, None] >= order[None]).float()))
        parametrize.register_parametrization(self.b, "weight", Masked((order[:, None] > degree[None]).float()))

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))
