# Sees: a NumPy array is made into a tensor at every call; from_numpy knows one device only.
# input: 4x12
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.window = np.hanning(12).astype("float32")

    def forward(self, x):
        window = torch.from_numpy(self.window)  # defect: default-device
        return self.fc(x * window)
