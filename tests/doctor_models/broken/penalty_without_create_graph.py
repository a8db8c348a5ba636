# Sees: the network that is to be smooth gets no gradient from the penalty.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 1))
        self.weight = nn.Parameter(torch.ones(12))

    def forward(self, x):
        x = x.requires_grad_()
        (force,) = torch.autograd.grad(self.energy(x).sum(), x)  # defect: cut-from-autograd
        return force * self.weight
