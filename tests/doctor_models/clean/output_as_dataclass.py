# The result is an object of its own.
# input: 4x12
# train
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(12, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.body(x).relu()
        return Output(logits=self.head(hidden), hidden=hidden)
