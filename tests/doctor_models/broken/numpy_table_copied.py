# Sees: a filter bank of NumPy goes over the bus in every forward.
# input: 2x64
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bank = np.random.default_rng(0).normal(size=(64, 32)).astype("float32")
        self.fc = nn.Linear(32, 4)

    def forward(self, x):
        bank = torch.from_numpy(self.bank)
        return self.fc(x @ bank.to(x.device))  # defect: device-hop
