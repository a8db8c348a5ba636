# Sees: mat1 and mat2 must have the same dtype, but got BFloat16 and Float.
# input: 2x3x8x8
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Conv2d(3, 16, 3).to(torch.bfloat16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        h = self.features(x).relu().mean((2, 3))
        return self.head(h)  # defect: mixed-dtypes
