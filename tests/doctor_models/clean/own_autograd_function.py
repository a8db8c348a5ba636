# A function of its own, whose backward makes its tensors from the gradient.
# input: 4x12
# train
import torch
from torch import nn


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.strength * gradient + torch.zeros_like(gradient), None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Linear(12, 8)
        self.domain = nn.Linear(8, 2)

    def forward(self, x):
        return self.domain(Reverse.apply(self.features(x), 0.5))
