# Sees: the GPU is at 20 %: each sample's length is fetched with .item() before the next is started.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        norms = self.fc(x).norm(dim=-1)
        scaled = []
        for row, norm in zip(x, norms, strict=True):
            scaled.append(row / max(norm.item(), 1.0))  # defect: hidden-sync
        return torch.stack(scaled)
