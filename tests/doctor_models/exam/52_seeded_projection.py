import math

import torch
from torch import nn


class RandomFeatures(nn.Module):
    def __init__(self, dim=12, features=32, seed=7):
        super().__init__()
        rng = torch.Generator().manual_seed(seed)
        self.register_buffer("omega", torch.randn(dim, features, generator=rng))
        self.register_buffer("phase", torch.rand(features, generator=rng) * 2 * math.pi)
        self.register_buffer("order", torch.randperm(features, generator=rng))

    def forward(self, x):
        wave = torch.cos(x @ self.omega + self.phase)
        return wave.index_select(1, self.order) * math.sqrt(2 / wave.size(1))
