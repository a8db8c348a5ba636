# Relative positions as a buffer that can be computed again.
# input: 2x8x8x4
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        coords = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        rel = (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0) + 3
        self.register_buffer("index", rel[..., 0] * 7 + rel[..., 1], persistent=False)
        self.table = nn.Parameter(torch.zeros(49, 2))

    def forward(self, x):
        bias = self.table[self.index.view(-1)].view(16, 16, 2).sum()
        return torch.roll(self.fc(x), shifts=(-1, -1), dims=(1, 2)) + bias
