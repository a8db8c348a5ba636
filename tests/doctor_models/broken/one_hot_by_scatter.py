# Sees: scatter_ writes the labels' ones into zeros that are on the CPU.
# input: 4x12,4:int64
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 5)

    def forward(self, x, labels):
        target = torch.zeros(x.shape[0], 5)  # defect: default-device
        target.scatter_(1, labels.unsqueeze(1), 1.0)
        return ((self.fc(x).softmax(-1) - target) ** 2).mean()
