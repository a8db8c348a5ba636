# A ParameterList and a ParameterDict.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterList(torch.randn(12, 12) * 0.1 for _ in range(3))
        self.scales = nn.ParameterDict({"en": nn.Parameter(torch.ones(12))})

    def forward(self, x):
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        return x * self.scales["en"]
