# Sees: the positional encoding of the tutorial, without its last line (register_buffer).
# input: 2x10x16
import math

import torch
from torch import nn


class PositionalEncoding(nn.Module):
    def __init__(self, width, longest=64):
        super().__init__()
        position = torch.arange(longest).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        pe = torch.zeros(1, longest, width)
        pe[0, :, 0::2] = torch.sin(position * rate)
        pe[0, :, 1::2] = torch.cos(position * rate)
        self.pe = pe  # defect: unregistered-tensor

    def forward(self, x):
        return x + self.pe[:, : x.shape[1]]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(16, 16)
        self.positions = PositionalEncoding(16)

    def forward(self, x):
        return self.positions(self.proj(x))
