# Sees: nothing fails, and a profiler shows two copies from the host in every forward: indexing brings mask and columns
# over itself.
# input: 4x6
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x):
        x = x.clone()
        x[torch.rand(x.shape) < 0.1] = 0.0  # defect: device-hop
        return self.fc(x)[:, torch.tensor([0, 2, 4])]  # defect: device-hop
