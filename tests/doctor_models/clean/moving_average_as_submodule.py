# The average of the weights is a module of the model: it moves, is saved, and is not trained.
# input: 4x12
# train
import copy

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Linear(12, 4)
        self.average = copy.deepcopy(self.online).requires_grad_(False)

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.average.parameters(), self.online.parameters(), strict=True):
            slow.lerp_(fast, 0.01)

    def forward(self, x):
        self.follow()
        with torch.no_grad():
            target = self.average(x)
        return ((self.online(x) - target) ** 2).mean()
