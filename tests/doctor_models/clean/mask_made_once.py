# A mask is made on the CPU for each new length, moved, and kept: later calls copy nothing.
# input: 2x6x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.masks = {}

    def forward(self, x):
        length = x.shape[1]
        if length not in self.masks:
            self.masks[length] = torch.ones(length, length).tril().to(x.device)
        return self.masks[length] @ self.fc(x)
