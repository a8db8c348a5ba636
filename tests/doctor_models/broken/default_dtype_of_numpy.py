# Sees: alphas of a schedule from NumPy, in float64, as a buffer.
# input: 4x12,4:int64
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.register_buffer("alphas", torch.tensor(np.cumprod(np.linspace(0.99, 0.9, 50))))

    def forward(self, x, t):
        return self.alphas[t][:, None] * self.fc(x)  # defect: dtype-promotion
