# Sees: a list becomes a tensor on the CPU and is copied over at every call.
# input: 4x3
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.weights = [0.2, 0.3, 0.5]

    def forward(self, x):
        weights = torch.tensor(self.weights).to(x.device)  # defect: device-hop
        return self.fc(x) * weights
