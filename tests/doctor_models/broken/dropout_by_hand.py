# Sees: a mask of stochastic depth, one number per sample, made without a device.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        kept = (torch.rand(x.shape[0], 1) > 0.1).float()  # defect: default-device
        return x + self.fc(x) * kept
