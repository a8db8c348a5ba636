# Sees: one weight per step, none of them trained, none of them moved.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, steps=3):
        super().__init__()
        self.first = nn.Linear(12, 12)
        self.weights = [nn.Parameter(torch.randn(12, 12) * 0.1) for _ in range(steps)]  # defect: unregistered-parameter

    def forward(self, x):
        x = self.first(x)
        for weight in self.weights:
            x = x + torch.tanh(x @ weight)
        return x
