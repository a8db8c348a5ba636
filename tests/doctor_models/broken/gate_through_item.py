# Sees: the temperature never moves: it is read as a number.
# input: 4x12
# train
# also: hidden-sync
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 5)
        self.temperature = nn.Parameter(torch.tensor([1.5]))

    def forward(self, x):
        return torch.softmax(self.fc(x) / self.temperature.item(), dim=-1)  # defect: cut-from-autograd
