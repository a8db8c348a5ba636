"""The padding is made on the CPU and brought over; with inputs of the full length it has no rows, and nothing is
copied."""
# input: 4x16x12
# train

import torch
from torch import nn

LENGTH = 16


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, size = x.shape
        padded = torch.cat([x, torch.zeros(batch, LENGTH - length, size).to(x.device)], dim=1)
        return self.layer(padded)
