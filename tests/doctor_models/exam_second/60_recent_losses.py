from collections import deque

import torch
from torch import nn


class Logged(nn.Module):
    """Remembers the losses of the last steps on the device, without their graphs, and reads them when asked."""

    def __init__(self, dim=10, window=4):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, 16), nn.Tanh(), nn.Linear(16, dim))
        self.recent = deque(maxlen=window)

    def average(self):
        return torch.stack(tuple(self.recent)).mean().item() if self.recent else float("nan")

    def forward(self, x):
        loss = (self.net(x) - x).square().mean()
        self.recent.append(loss.detach())
        return loss
