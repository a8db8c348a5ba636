# Sees: "Expected all tensors to be on the same device" at the flags, and then a loop that waits in every step.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(12, 12)

    def forward(self, x):
        hidden = x
        done = torch.zeros(x.shape[0], dtype=torch.bool)  # defect: default-device
        for _ in range(3):
            hidden = self.cell(x, hidden)
            done |= hidden.mean(-1) > 0.5
            if done.all():  # defect: hidden-sync
                break
        return hidden
