# Sees: keys and values of earlier tokens are kept in a list that was filled in __init__.
# input: 2x4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.key = nn.Linear(12, 12)
        self.value = nn.Linear(12, 12)
        self.cache = [torch.zeros(1, 1, 12), torch.zeros(1, 1, 12)]  # defect: unregistered-tensor

    def forward(self, x):
        start_key, start_value = (one.expand(x.shape[0], -1, -1) for one in self.cache)
        keys = torch.cat((start_key, self.key(x)), dim=1)
        values = torch.cat((start_value, self.value(x)), dim=1)
        return (x @ keys.transpose(1, 2)).softmax(-1) @ values
