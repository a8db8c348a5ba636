# Sees: train() and eval() put another tensor into a buffer, on the CPU, after the model has moved.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.register_buffer("scale", torch.ones(12))

    def train(self, mode=True):
        super().train(mode)
        self.scale = torch.ones(12) * (2 if mode else 1)  # defect: default-device
        return self

    def forward(self, x):
        return self.fc(x) * self.scale
