# A learned step for rounding, with a straight-through gradient.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.step = nn.Parameter(torch.tensor(0.1))

    def forward(self, x):
        y = self.fc(x) / self.step
        return (y + (y.round() - y).detach()) * self.step
