# Sees: the same mean under a second, shorter name; after the move the short one is still the old memory.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.register_buffer("running_mean", torch.zeros(12))
        self.mu = self.running_mean  # defect: stale-alias

    def forward(self, x):
        return self.fc(x - self.mu)
