# Sees: two halves on two cards, and the activations are not copied from one to the other.
# input: 4x12
# virtual: 2x Tesla T4
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 16)
        self.second = nn.Linear(16, 4)

    def to(self, device):
        device = torch.device(device)
        self.first.to(device)
        self.second.to(torch.device(device.type, 1))
        return self

    def forward(self, x):
        x = self.first(x).relu()
        return self.second(x)  # defect: mixed-devices
