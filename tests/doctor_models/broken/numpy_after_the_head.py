# Sees: forward ends with a filter of NumPy; on the GPU everything waits for it.
# input: 4x12
import numpy as np
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        scores = self.fc(x).detach().cpu().numpy()  # defect: hidden-sync
        return np.sort(scores, axis=-1)[:, ::-1].copy()
