# The running mean is a buffer, and forward assigns it under its registered name.
# input: 4x12
# train
import torch
from torch import nn


class Centre(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            self.seen += 1
        return x - self.mean


def make():
    return nn.Sequential(nn.Linear(12, 12), Centre(12))
