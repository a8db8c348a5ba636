# Sees: a hook on the gradient of a parameter adds a tensor of the CPU.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.fc.weight.register_hook(lambda gradient: gradient + torch.zeros(12, 12))  # defect: default-device

    def forward(self, x):
        return self.fc(x)
