# Sees: a helper outside the model makes the mask of a window.
# input: 2x6x8
import torch
from torch import nn


def band(length, width):
    rows = torch.arange(length)  # defect: default-device
    return (rows[:, None] - rows[None, :]).abs() <= width


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.mT).masked_fill(~band(x.shape[1], 1), -1e9)
        return scores.softmax(-1) @ v
