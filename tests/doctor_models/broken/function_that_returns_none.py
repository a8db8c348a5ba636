# Sees: the scale does not learn: backward of the function gives it nothing.
# input: 4x12
# train
import torch
from torch import nn


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(scale)
        return x * scale

    @staticmethod
    def backward(ctx, gradient):
        (scale,) = ctx.saved_tensors
        return gradient * scale, None  # defect: cut-from-autograd


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.scale = nn.Parameter(torch.full((12,), 0.5))

    def forward(self, x):
        return Scaled.apply(self.fc(x), self.scale)
