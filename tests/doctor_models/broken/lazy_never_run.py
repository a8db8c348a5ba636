# Sees: "Attempted to use an uninitialized parameter" when the parameters are counted.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.LazyLinear(8)
        self.skip = nn.LazyLinear(8)  # defect: lazy-parameter

    def forward(self, x):
        return self.body(x)
