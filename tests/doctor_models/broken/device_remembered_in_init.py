# Sees: the device of the weights is remembered in __init__, when they are on the CPU still.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.device = self.fc.weight.device

    def forward(self, x):
        bias = torch.ones(12, device=self.device)
        return self.fc(x) + bias  # defect: mixed-devices
