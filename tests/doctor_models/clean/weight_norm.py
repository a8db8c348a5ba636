# PyTorch's own parametrization.
# input: 4x12
# train
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


def make():
    return nn.Sequential(weight_norm(nn.Linear(12, 12)), nn.Tanh(), nn.Linear(12, 3))
