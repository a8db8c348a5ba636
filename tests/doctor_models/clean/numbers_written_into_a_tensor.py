"""`out=` is a tensor that is written into: the host does not wait, since it knows both ends of the range."""
# input: 4x12

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.empty(x.shape[1], device=x.device)
        torch.arange(0, x.shape[1], out=positions)
        steps = torch.linspace(0.0, 1.0, x.shape[1], out=torch.empty_like(positions))
        return self.layer(x) * positions + steps
