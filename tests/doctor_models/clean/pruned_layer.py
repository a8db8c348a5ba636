# PyTorch's pruning: the weight is computed from a parameter and a mask.
# input: 4x12
# train
from torch import nn
from torch.nn.utils import prune


def make():
    layer = nn.Linear(12, 12)
    prune.l1_unstructured(layer, "weight", amount=0.5)
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(12, 2))
