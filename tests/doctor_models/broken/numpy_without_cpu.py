# Sees: "can't convert cuda:0 device type tensor to numpy".
# input: 4x12
import numpy as np
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        scores = self.fc(x).detach()
        return np.median(scores.numpy(), axis=-1)  # defect: fails-on-device
