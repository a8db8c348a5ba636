# Sees: works for months on the CPU; on the GPU the product in the last line fails.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.scale = torch.full((12,), 0.5)  # defect: unregistered-tensor

    def forward(self, x):
        return self.fc(x) * self.scale
