import torch
from torch import nn


class DeepEquilibrium(nn.Module):
    def __init__(self, dim=12, tolerance=1e-3, limit=30):
        super().__init__()
        self.tolerance = tolerance
        self.limit = limit
        self.inject = nn.Linear(dim, dim)
        self.cell = nn.Linear(dim, dim, bias=False)
        with torch.no_grad():
            self.cell.weight.mul_(0.3)

    def forward(self, x):
        u = self.inject(x)
        z = torch.zeros_like(u)
        residual = torch.full_like(u[0, 0], torch.inf)
        steps = 0
        while residual > self.tolerance and steps < self.limit:
            new = torch.tanh(self.cell(z) + u)
            residual = (new - z).norm()
            z = new
            steps += 1
        return z
