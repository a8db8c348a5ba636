import torch
from torch import nn


class Branches(nn.Module):
    """The gradients of rare tasks are made larger on their way back."""

    def __init__(self, dim=10):
        super().__init__()
        self.trunk = nn.Linear(dim, 16)
        self.heads = nn.Linear(16, 3)
        self.register_buffer("scale", torch.tensor([1.0, 0.5, 2.0]), persistent=False)
        self.hook = lambda grad: grad * self.scale

    def forward(self, x):
        y = self.heads(torch.relu(self.trunk(x)))
        if y.requires_grad:
            y.register_hook(self.hook)
        return y
