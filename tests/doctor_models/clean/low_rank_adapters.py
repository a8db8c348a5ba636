# Low-rank adapters around frozen layers.
# input: 4x12
# train
import torch
from torch import nn


class Lora(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.01)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.a.t() @ self.b.t()


def make():
    return nn.Sequential(Lora(nn.Linear(12, 12)), nn.ReLU(), Lora(nn.Linear(12, 3)))
