import torch
from torch import nn


class StableVariance(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        h = self.proj(x)
        wide = torch.float32 if h.device.type == "mps" else torch.float64
        centred = h.to(wide) - h.to(wide).mean(dim=-1, keepdim=True)
        return centred.square().mean(dim=-1).to(h.dtype)
