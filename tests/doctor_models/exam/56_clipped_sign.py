import torch
from torch import nn


class SignSTE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        window = torch.linspace(1.0, 0.5, grad.size(-1), device=grad.device)
        return torch.where(x.abs() <= 1, grad * window, grad.new_zeros(()))


class ClippedSign(nn.Module):
    def __init__(self, dim=10):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return SignSTE.apply(self.fc(x))
