# Sees: zeros are put in front of the sequence, on the CPU.
# input: 2x5x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(12, 12, 3)

    def forward(self, x):
        front = torch.zeros(x.shape[0], 2, x.shape[2])  # defect: default-device
        x = torch.cat((front, x), dim=1)
        return self.conv(x.transpose(1, 2))
