# A constant that follows the model: registered.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.register_buffer("scale", torch.full((12,), 0.5))

    def forward(self, x):
        return self.fc(x) * self.scale
