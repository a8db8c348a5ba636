"""A model of a user's own with one tensor in the wrong place, and one with so many rows that they cross the link in
pieces."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 12)
        self.scale = torch.ones(12)
        print("built")

    def forward(self, x):
        return self.layer(x) * self.scale


def wide():
    return nn.Sequential(*(nn.Linear(1, 1) for _ in range(700)))
