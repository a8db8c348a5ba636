# Sees: the encoder is a class of its own that forgot to be an nn.Module.
# input: 4x12
from torch import nn


class Encoder:
    def __init__(self, width):
        self.inner = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def __call__(self, x):
        return self.norm(self.inner(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder(12)  # defect: unregistered-module
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.encoder(x))
