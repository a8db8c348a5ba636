# Sees: out of memory after some thousand steps, at any batch size.
# input: 4x8
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)
        self.losses = []

    def forward(self, x):
        h = torch.tanh(self.fc(x))
        self.losses.append(h.pow(2).mean())  # defect: growing-graph
        return h
