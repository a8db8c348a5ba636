from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Binning:
    start: float = 0.5
    stop: float = 4.0
    count: int = 11
    edges: torch.Tensor = field(init=False)

    def __post_init__(self):
        self.edges = torch.linspace(self.start, self.stop, self.count)

    def __call__(self, distances):
        return torch.bucketize(distances, self.edges)


class PairEmbedding(nn.Module):
    def __init__(self, binning, dim):
        super().__init__()
        self.binning = binning
        self.table = nn.Embedding(binning.count + 1, dim)

    def forward(self, coords):
        return self.table(self.binning(torch.cdist(coords, coords)))


class Distogram(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.pairs = PairEmbedding(Binning(), dim)
        self.mix = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, 1)

    def forward(self, coords):
        z = torch.relu(self.mix(self.pairs(coords)))
        return self.head(z + z.transpose(1, 2)).squeeze(-1)
