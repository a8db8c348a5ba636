import torch
from torch import nn


class ScaledMLP(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.scale = torch.linspace(0.5, 1.5, dim)

    def _apply(self, fn, recurse=True):
        self.scale = fn(self.scale)
        return super()._apply(fn, recurse)

    def forward(self, x):
        return self.fc(x) * self.scale


class ParallelNet(nn.Module):
    def __init__(self, dim=12, classes=3):
        super().__init__()
        self.trunk = nn.DataParallel(ScaledMLP(dim))
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.trunk(x).relu())
