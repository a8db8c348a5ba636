# Sees: the losses of the parts are summed as Python numbers: a synchronisation for each, and no gradient.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(12, 1) for _ in range(3))

    def forward(self, x):
        total = 0.0
        for part in self.parts:
            total += float(part(x).mean())  # defect: hidden-sync
        return x * total
