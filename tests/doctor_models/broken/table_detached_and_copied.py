# Sees: nothing, but a table that is copied in every call, whatever is said to it before.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.table = torch.linspace(0, 1, 12)

    def forward(self, x):
        table = self.table.detach().expand(x.shape[0], -1).to(device=x.device)  # defect: device-hop
        return self.fc(x) + table
