# A plain list of Parameters that are registered elsewhere too: a move keeps the objects, so the list stays right.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 8)
        self.second = nn.Linear(8, 3)
        self.decayed = [self.first.weight, self.second.weight]

    def forward(self, x):
        y = self.second(self.first(x).relu())
        return y.mean() + 1e-3 * sum(weight.square().sum() for weight in self.decayed)
