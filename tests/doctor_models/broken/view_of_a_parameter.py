# Sees: the query's rows of a joint projection, cut out once in __init__: the slice stays where the weight was.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(12, 36, bias=False)
        self.query = self.qkv.weight.data[:12]  # defect: stale-alias

    def forward(self, x):
        return nn.functional.linear(x, self.query) + self.qkv(x)[:, 12:24]
