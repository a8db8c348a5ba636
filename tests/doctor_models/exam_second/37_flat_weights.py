import torch
from torch import nn


class FlatMLP(nn.Module):
    """All weights are views of one vector, which is put back on the sphere before each step."""

    def __init__(self, dim=8, hidden=16, radius=5.0):
        super().__init__()
        self.radius = radius
        self.a = nn.Linear(dim, hidden)
        self.b = nn.Linear(hidden, 2)
        self._flatten()

    def _flatten(self):
        params = list(self.parameters())
        self.flat = torch.cat([p.data.flatten() for p in params])
        start = 0
        for p in params:
            p.data = self.flat[start : start + p.numel()].view_as(p)
            start += p.numel()

    @torch.no_grad()
    def project(self):
        self.flat.mul_(self.radius / self.flat.norm())

    def forward(self, x):
        self.project()
        return self.b(torch.relu(self.a(x)))
