# Sees: "expected self and mask to be on the same device" in attention.
# input: 2x10x16
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, longest=32):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.mask = torch.tril(torch.ones(longest, longest, dtype=torch.bool))  # defect: unregistered-tensor

    def forward(self, x):
        length = x.shape[1]
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) / x.shape[-1] ** 0.5
        scores = scores.masked_fill(~self.mask[:length, :length], float("-inf"))
        return scores.softmax(-1) @ v


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Attention(16) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x
