import torch
import torch.nn.functional as F
from torch import nn


class BinarizeSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, clip):
        ctx.save_for_backward(weight)
        ctx.clip = clip
        return weight.sign()

    @staticmethod
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        inside = torch.zeros(weight.shape)
        inside = torch.where(weight.abs() <= ctx.clip, grad, inside)
        return inside, None


class BinaryLayer(nn.Module):
    def __init__(self, inputs=10, outputs=6):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-2, 2))
        self.scale = nn.Parameter(torch.ones(outputs))

    def forward(self, x):
        return F.linear(x, BinarizeSTE.apply(self.weight, 1.0)) * self.scale
