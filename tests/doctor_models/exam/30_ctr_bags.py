import torch
from torch import nn


class ClickModel(nn.Module):
    """Each row is one user's history of item ids."""

    def __init__(self, items=10000, dim=8):
        super().__init__()
        self.bag = nn.EmbeddingBag(items, dim, mode="mean")
        self.deep = nn.Sequential(nn.Linear(dim, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, history):
        users, length = history.shape
        offsets = torch.arange(0, users * length, length)
        pooled = self.bag(history.flatten(), offsets)
        return torch.sigmoid(self.deep(pooled)).squeeze(1)
