import torch
from torch import nn


class Branching(nn.Module):
    """The plain dict and list only order modules that are registered elsewhere."""

    def __init__(self, dim=12):
        super().__init__()
        self.small = nn.Linear(dim, 8)
        self.wide = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 8))
        self.out = nn.Linear(16, 2)
        self.routes = {"small": self.small, "wide": self.wide}
        self.order = ["wide", "small"]
        self.trunk = [self.small.weight, self.small.bias]

    def penalty(self):
        return sum(p.square().sum() for p in self.trunk)

    def forward(self, x):
        y = torch.cat([self.routes[name](x) for name in self.order], dim=-1)
        return self.out(y), self.penalty()
