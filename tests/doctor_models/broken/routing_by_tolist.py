# Sees: the tokens are handed out to experts by a Python loop over the chosen numbers.
# input: 6x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(12, 3)
        self.experts = nn.ModuleList(nn.Linear(12, 12) for _ in range(3))

    def forward(self, x):
        chosen = self.gate(x).argmax(-1).tolist()  # defect: hidden-sync
        return torch.stack([self.experts[number](row) for number, row in zip(chosen, x, strict=True)])
