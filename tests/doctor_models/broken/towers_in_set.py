# Sees: two towers that are summed, so their order does not matter; on the GPU they stay behind.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.towers = {nn.Linear(12, 6), nn.Linear(12, 6)}  # defect: unregistered-module

    def forward(self, x):
        x = self.norm(x)
        return sum(tower(x) for tower in self.towers)
