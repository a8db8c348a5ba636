# Sees: each step is slower than the one before.
# input: 4x8
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.register_buffer("centre", torch.zeros(4))

    def forward(self, x):
        h = self.fc(x)
        self.centre = 0.9 * self.centre + 0.1 * h.mean(0)  # defect: growing-graph
        return h - self.centre.detach()
