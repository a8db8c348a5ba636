# Every condition is about shapes, flags and numbers of Python's.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, depth=2, dropout=0.1):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.depth = depth
        self.dropout = dropout

    def forward(self, x):
        if x.dim() == 2 and x.shape[0] > 1 and x.is_floating_point():
            for _ in range(self.depth):
                x = self.fc(x)
        if self.training and self.dropout > 0:
            x = nn.functional.dropout(x, self.dropout)
        return x if x.requires_grad or not torch.is_grad_enabled() else x.clone()
