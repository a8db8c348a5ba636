# Results in a tuple with names, a dict and a list.
# input: 4x12
# train
from typing import NamedTuple

import torch
from torch import nn


class Out(NamedTuple):
    a: torch.Tensor
    b: dict


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 4)

    def forward(self, x):
        y = self.fc(x)
        return Out(y, {"n": 3, "t": [y.sum(), None]})
