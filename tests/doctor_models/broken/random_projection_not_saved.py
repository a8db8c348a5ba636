# Sees: the same checkpoint gives other results in every process: the random projection is drawn again.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("projection", torch.randn(12, 24) / 12**0.5, persistent=False)  # defect: unsaved-buffer
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        return self.head(torch.cos(x @ self.projection))
