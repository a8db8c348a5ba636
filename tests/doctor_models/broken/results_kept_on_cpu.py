# Sees: nothing, but a GPU that stands idle after each step; the results are on the CPU and the loss is refused.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(12, 12)

    def forward(self, x):
        outputs = torch.zeros(3, x.shape[0], 12)
        hidden = x
        for step in range(3):
            hidden = self.cell(x, hidden)
            outputs[step] = hidden  # defect: hidden-sync
        return outputs
