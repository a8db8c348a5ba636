# A plain list and a closure over modules that are registered, too.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(12, 12)
        self.b = nn.Linear(12, 12)
        self.order = [self.b, self.a]
        self.first = lambda x: self.a(x)

    def forward(self, x):
        for layer in self.order:
            x = layer(x).relu()
        return self.first(x)
