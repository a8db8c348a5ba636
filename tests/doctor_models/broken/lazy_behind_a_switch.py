# Sees: the auxiliary head is lazy and switched off: it never gets a shape, and counting the parameters fails.
# input: 2x3x8x8
from torch import nn


class Net(nn.Module):
    def __init__(self, auxiliary=False):
        super().__init__()
        self.auxiliary = auxiliary
        self.body = nn.Conv2d(3, 4, 3)
        self.aux = nn.LazyConv2d(2, 1)  # defect: lazy-parameter
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = self.body(x)
        logits = self.head(x.mean((2, 3)))
        return (logits, self.aux(x)) if self.auxiliary else logits
