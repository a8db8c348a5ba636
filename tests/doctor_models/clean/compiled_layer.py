# A compiled layer runs as it is written; what was made of it nobody looked at.
# unchecked: the compiled code
# input: 4x12
import torch
from torch import nn


def make():
    return nn.Sequential(torch.compile(nn.Linear(12, 3)))
