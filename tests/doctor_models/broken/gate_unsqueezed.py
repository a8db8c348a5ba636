# Sees: a dimension was added behind the Parameter, and the gate stays closed for ever.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.gate = nn.Parameter(torch.zeros(12)).unsqueeze(0)  # defect: parameter-not-leaf

    def forward(self, x):
        return self.fc(x) * self.gate.sigmoid()
