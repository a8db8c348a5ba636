# Sees: a memory bank of features as a plain attribute, looked up by similarity.
# input: 4x12
import torch
from torch import nn


class Bank(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.features = torch.randn(size, width)  # defect: unregistered-tensor
        self.oldest = 0

    def forward(self, x):
        return (x @ self.features.t()).softmax(-1) @ self.features


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 8)
        self.bank = Bank(8, 20)

    def forward(self, x):
        return self.bank(self.encoder(x))
