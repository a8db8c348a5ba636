# Ready for two cards: each half takes what it is given to where it is itself. On one card that copies nothing.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x):
        x = self.first(x.to(self.first.weight.device)).relu()
        return self.second(x.to(self.second.weight.device))
