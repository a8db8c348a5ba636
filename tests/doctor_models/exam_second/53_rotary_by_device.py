from functools import lru_cache

import torch
from torch import nn


@lru_cache(maxsize=16)
def rotary_table(length, dim, device, dtype):
    inverse = 1.0 / 10000.0 ** (torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim)
    angles = torch.outer(torch.arange(length, device=device, dtype=torch.float32), inverse)
    return angles.cos().to(dtype), angles.sin().to(dtype)


class Rotary(nn.Module):
    def forward(self, x):
        cos, sin = rotary_table(x.size(1), x.size(2), x.device, x.dtype)
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(2)


class Mixer(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)
        self.rotary = Rotary()

    def forward(self, x):
        q, k = self.rotary(self.q(x)), self.rotary(self.k(x))
        return torch.softmax(q @ k.transpose(1, 2), dim=-1) @ x
