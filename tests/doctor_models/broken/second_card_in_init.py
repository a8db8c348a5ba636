# Sees: "invalid device ordinal" on every machine with one card.
# input: 4x12
# virtual: 2x Tesla T4
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.device = torch.device("cuda:1")
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        x = x.to(self.device)  # defect: hard-coded-device
        return self.fc(x)
