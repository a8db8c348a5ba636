import torch
from torch import nn


class WindowAttention(nn.Module):
    def __init__(self, dim=24, heads=3, window=4):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        ys, xs = torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
        places = torch.stack([ys.flatten(), xs.flatten()])
        offsets = places[:, :, None] - places[:, None, :] + window - 1
        self.relative_index = offsets[0] * (2 * window - 1) + offsets[1]
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        bias = self.table.index_select(0, self.relative_index.flatten()).view(n, n, -1)
        attention = (q * self.scale) @ k.transpose(-2, -1) + bias.permute(2, 0, 1)
        return self.proj((attention.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c))
