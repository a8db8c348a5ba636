# Sees: the initial values are made smaller, and with that the Parameter became the result of a product.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.mix = nn.Parameter(torch.randn(12, 12)) * 0.02  # defect: parameter-not-leaf

    def forward(self, x):
        return self.fc(x) @ self.mix
