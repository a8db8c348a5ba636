# Sees: the weight never changes: .data gives its values without their history.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(12, 6))
        self.bias = nn.Parameter(torch.zeros(6))

    def forward(self, x):
        return x @ self.weight.data + self.bias  # defect: cut-from-autograd
