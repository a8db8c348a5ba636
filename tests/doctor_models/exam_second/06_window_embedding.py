import torch
import torch.nn.functional as F
from torch import nn


def relative_index(size):
    coords = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")).flatten(1)
    relative = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0) + size - 1
    return relative[..., 0] * (2 * size - 1) + relative[..., 1]


class WindowAttention(nn.Module):
    def __init__(self, dim=16, window=4, heads=2):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.bias_table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        nn.init.trunc_normal_(self.bias_table, std=0.02)
        self.relative_position_index = relative_index(window)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def position_bias(self):
        return F.embedding(self.relative_position_index, self.bias_table).permute(2, 0, 1)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        attn = (attn + self.position_bias()).softmax(dim=-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(b, n, c))
