# Whole numbers, bools and numbers of NumPy take part without widening anything.
# input: 4x12,4x12:int64
import numpy as np
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.scale = np.float64(0.5)
        self.bounds = np.array([0.1, 0.9])

    def forward(self, x, counts):
        y = self.fc(x) * counts * float(self.scale)
        y = y.clamp(float(self.bounds[0]), float(self.bounds[1]))
        return y * (x > 0)
