# Sees: the results on a card are half of those on the CPU, and nothing fails.
# input: 4x8
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        h = self.fc(x)
        h = h * 2 if x.device.type == "cpu" else h  # defect: differs-on-device
        return torch.tanh(h)
