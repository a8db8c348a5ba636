# Sees: "Expected all tensors to be on the same device" in the first layer, and an optimizer that has nothing to train
# there.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(12, 12)
        self.layers = [nn.Linear(12, 12) for _ in range(3)]  # defect: unregistered-module

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x
