# A table that is made once for each device.
# input: 4x12
from functools import lru_cache

import torch
from torch import nn


@lru_cache
def ramp(count, device):
    return torch.arange(count, device=device) / count


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        h = self.fc(x)
        return h * ramp(h.shape[-1], h.device)
