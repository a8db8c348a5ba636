# Sees: torch.tensor() of a list of tensors fetches each of them.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(12, 1) for _ in range(3))

    def forward(self, x):
        means = torch.tensor([part(x).mean() for part in self.parts])  # defect: hidden-sync
        return means.max()
