import torch
from torch import nn


def fake_checkpoint(dim, rank):
    """What torch.load(path, map_location="cpu") would give."""
    return {"A": torch.randn(rank, dim) * 0.02, "B": torch.randn(dim, rank) * 0.02}


class AdaptedLinear(nn.Module):
    def __init__(self, dim, rank=4):
        super().__init__()
        self.base = nn.Linear(dim, dim)
        self.adapter = fake_checkpoint(dim, rank)
        self.merged = False

    def merge(self):
        delta = self.adapter["B"] @ self.adapter["A"]
        self.base.weight.data = self.base.weight.data.cpu() + delta
        self.merged = True

    def forward(self, x):
        if not self.merged:
            self.merge()
        return self.base(x)


class AdaptedMLP(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.first = AdaptedLinear(dim)
        self.norm = nn.LayerNorm(dim)
        self.second = AdaptedLinear(dim)

    def forward(self, x):
        return self.second(self.norm(torch.relu(self.first(x))))
