# A compiled layer runs as it is written, which the diagnosis says; that is no reason to call it unchecked.
# input: 4x12
import torch
from torch import nn


def make():
    return nn.Sequential(torch.compile(nn.Linear(12, 3)))
