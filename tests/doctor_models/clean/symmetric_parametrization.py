# The weight is computed from a parameter at every use.
# input: 4x12
# train
import torch
from torch import nn
from torch.nn.utils import parametrize


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + torch.triu(weight, 1).transpose(-1, -2)


def make():
    layer = nn.Linear(12, 12)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(12, 3))
