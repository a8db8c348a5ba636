# Sees: cosine and sine are buffers, the pair of them that forward uses is not.
# input: 2x6x8
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)
        angles = torch.outer(torch.arange(16.0), 1 / 100 ** (torch.arange(0, 8, 2) / 8)).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.rotation = (self.cos, self.sin)  # defect: stale-alias

    def forward(self, x):
        cos, sin = (table[: x.shape[1]] for table in self.rotation)
        x = self.proj(x)
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-right, left), dim=-1) * sin
