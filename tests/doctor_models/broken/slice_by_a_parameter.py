# Sees: a learned position becomes a Python number to slice with.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.cut = nn.Parameter(torch.tensor(6.0))

    def forward(self, x):
        return self.fc(x)[:, : int(self.cut)]  # defect: hidden-sync
