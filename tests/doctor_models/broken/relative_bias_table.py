# Sees: distances between positions by arange, then looked up in a table of the GPU: the same defect two layers down.
# input: 2x6x16
import torch
from torch import nn


class RelativeBias(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.table = nn.Embedding(31, heads)

    def forward(self, length):
        steps = torch.arange(length)  # defect: default-device
        return self.table(steps[None, :] - steps[:, None] + 15).permute(2, 0, 1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.bias = RelativeBias(2)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.bias(x.shape[1]))


def make():
    return nn.Sequential(nn.Linear(16, 16), Attention())
