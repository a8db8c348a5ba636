# Sees: the running mean is a plain attribute that forward assigns again: the first step on the GPU fails.
# input: 4x12
import torch
from torch import nn


class Centre(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mean = torch.zeros(width)  # defect: unregistered-tensor

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


def make():
    return nn.Sequential(nn.Linear(12, 12), Centre(12))
