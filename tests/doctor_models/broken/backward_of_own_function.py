# Sees: forward works on the GPU, backward does not: the gradient's sign is kept in a tensor of the CPU.
# input: 4x12
# train
import torch
from torch import nn


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        strength = torch.full((gradient.shape[-1],), -0.5)  # defect: default-device
        return gradient * strength


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(12, 8)
        self.domain = nn.Linear(8, 2)

    def forward(self, x):
        return self.domain(Reverse.apply(self.features(x)))
