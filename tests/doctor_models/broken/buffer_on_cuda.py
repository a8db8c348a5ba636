# Sees: the buffer is made on a card that is not there.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.register_buffer("offset", torch.zeros(12, device="cuda"))  # defect: hard-coded-device

    def forward(self, x):
        return self.fc(x) + self.offset
