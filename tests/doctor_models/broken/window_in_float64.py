# Sees: NumPy's float64 came along; from the product on everything is twice as large.
# input: 4x12
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.register_buffer("window", torch.from_numpy(np.hanning(12)))

    def forward(self, x):
        return self.fc(x) * self.window  # defect: dtype-promotion
