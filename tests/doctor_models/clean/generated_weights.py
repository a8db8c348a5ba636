# A hypernetwork: the weight of one layer is the output of another one.
# input: 4x12,5
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.make_weight = nn.Linear(5, 12 * 3)

    def forward(self, x, task):
        weight = self.make_weight(task).view(3, 12)
        return nn.functional.linear(x, weight, torch.zeros(3, dtype=x.dtype, device=x.device))
