# Sees: on the CPU a sum in place; on the GPU the number on the CPU cannot take it.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        total = torch.tensor(0.0)  # defect: default-device
        for row in self.fc(x):
            total += row.sum()
        return total
