# Sees: a lambda as a pre-hook subtracts a mean that is not moved.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 4)
        mean = torch.full((12,), 0.1)  # defect: unregistered-tensor
        self.fc.register_forward_pre_hook(lambda module, args: (args[0] - mean,))

    def forward(self, x):
        return self.fc(x)
