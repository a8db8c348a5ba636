# Sees: the shared encoder was written into __dict__, so that it is not counted twice; now it does not move either.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 2)
        self.__dict__["encoder"] = nn.Linear(12, 8)  # defect: unregistered-module

    def forward(self, x):
        return self.head(self.encoder(x).relu())
