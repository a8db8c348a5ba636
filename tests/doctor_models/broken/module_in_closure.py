# Sees: a projection that is on no list of parameters, and on the CPU for ever.
# input: 4x12
from torch import nn


def projected(inner):
    def run(x):
        return x + inner(x)

    return run


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.project = projected(nn.Linear(12, 12))  # defect: unregistered-module

    def forward(self, x):
        return self.project(self.norm(x))
