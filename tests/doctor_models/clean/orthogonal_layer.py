# An orthogonal weight by PyTorch's parametrization.
# input: 4x12
# train
from torch import nn
from torch.nn.utils.parametrizations import orthogonal


def make():
    return nn.Sequential(orthogonal(nn.Linear(12, 12)), nn.ReLU(), nn.Linear(12, 2))
