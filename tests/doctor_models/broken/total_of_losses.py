# Sees: losses are added in place to a number that was made on the CPU.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(12, 1) for _ in range(2))

    def forward(self, x):
        total = torch.zeros(1)  # defect: default-device
        for head in self.heads:
            total = total + head(x).mean(0)
        return total
