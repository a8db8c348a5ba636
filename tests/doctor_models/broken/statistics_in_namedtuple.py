# Sees: a named tuple holds what the input is normalised with, where no move looks.
# input: 4x12
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Statistics(NamedTuple):
    mean: Tensor
    deviation: Tensor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.statistics = Statistics(torch.zeros(12), torch.ones(12))  # defect: unregistered-tensor

    def forward(self, x):
        return self.fc((x - self.statistics.mean) / self.statistics.deviation)
