# Sees: parameters() is shorter than it should be, and the weight never changes.
# input: 4x12
# also: hard-coded-device
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(6))
        self.weight = nn.Parameter(torch.randn(12, 6) * 0.1).cuda()  # defect: parameter-not-leaf

    def forward(self, x):
        return x @ self.weight + self.bias
