# Sees: nothing wrong: what is kept for a plot is detached, and the loss is not.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.register_buffer("largest", torch.zeros(12))

    def forward(self, x):
        y = self.fc(x)
        self.largest.copy_(torch.maximum(self.largest, y.detach().abs().amax(0)))
        mask = (y > 0).to(y.dtype)
        return y * mask
