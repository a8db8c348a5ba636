import torch
from torch import nn


class RotaryAttention(nn.Module):
    def __init__(self, dim=16, base=10000.0):
        super().__init__()
        self.dim = dim
        self.base = base
        self.q = nn.Linear(dim, dim)
        self.k = nn.Linear(dim, dim)

    def angles(self, length, device):
        exponent = torch.arange(0, self.dim, 2, device=device, dtype=torch.float64) / self.dim
        position = torch.arange(length, device=device)
        return torch.outer(position, self.base**-exponent)

    def rotate(self, x, angles):
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.cat([even * cos - odd * sin, even * sin + odd * cos], dim=-1)

    def forward(self, x):
        angles = self.angles(x.size(2), x.device)
        q, k = self.rotate(self.q(x), angles), self.rotate(self.k(x), angles)
        return (q @ k.transpose(-1, -2) / self.dim**0.5).softmax(dim=-1)
