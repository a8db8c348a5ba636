# Sees: a function made in __init__ closes over a tensor; the model moves, the function's tensor does not.
# input: 4x12
import torch
from torch import nn


def scaled_by(scale):
    return lambda x: x * scale


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.rescale = scaled_by(torch.linspace(0.5, 1.5, 12))  # defect: unregistered-tensor

    def forward(self, x):
        return self.rescale(self.fc(x))
