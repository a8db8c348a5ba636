# Sees: the table is made at the first call and kept, without a device.
# input: 2x6x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.slopes = None

    def forward(self, x):
        if self.slopes is None or self.slopes.shape[0] != x.shape[1]:
            self.slopes = torch.linspace(0, 1, x.shape[1]).unsqueeze(1)  # defect: default-device
        return self.fc(x) + self.slopes
