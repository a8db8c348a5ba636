import copy

import torch
from torch import nn
from torch.func import functional_call


class Reptile(nn.Module):
    """Regularises the output towards that of the weights before the task."""

    def __init__(self, dim=10, out=4, strength=0.1):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 24), nn.ReLU(), nn.Linear(24, out))
        self.strength = strength
        self.snapshot()

    def snapshot(self):
        self.before = copy.deepcopy(self.net.state_dict())

    def drift(self, x, y):
        with torch.no_grad():
            reference = functional_call(self.net, self.before, (x,))
        return (y - reference).pow(2).mean()

    def forward(self, x):
        y = self.net(x)
        if self.training:
            return y, self.strength * self.drift(x, y)
        return y
