# Sees: one-hot vectors by looking up rows of an identity that is made at every call.
# input: 4:int64
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 8)

    def forward(self, labels):
        rows = torch.eye(5)  # defect: default-device
        return self.fc(rows[labels])
