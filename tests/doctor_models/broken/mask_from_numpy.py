# Sees: a mask of NumPy becomes a tensor in forward, without a device.
# input: 4x12
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.mask = np.tril(np.ones((4, 12), dtype=bool))

    def forward(self, x):
        y = self.fc(x)
        return y.masked_fill(torch.tensor(self.mask), 0.0)  # defect: default-device
