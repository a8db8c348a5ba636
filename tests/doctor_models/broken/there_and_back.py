# Sees: one small block was left on the CPU; the activations go there and come back.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 12)
        self.odd = nn.Linear(12, 12)

    def _apply(self, fn, recurse=True):
        self.first._apply(fn, recurse)
        return self

    def forward(self, x):
        y = self.odd(self.first(x).to(self.odd.weight.device))  # defect: hidden-sync
        return y.to(x.device)  # defect: device-hop
