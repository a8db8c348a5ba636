# Sees: a function with a cache makes the table once, on the CPU, for all devices.
# input: 2x6x8
import functools

import torch
from torch import nn


@functools.lru_cache
def slopes(count):
    return torch.linspace(0, 1, count)  # defect: default-device


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x) * slopes(8)
