# Sees: the time's embedding is computed in double precision, and so is all that it is added to.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        phase = torch.arange(12, device=x.device, dtype=torch.float64) / 12
        return self.fc(x) + phase.sin()  # defect: dtype-promotion
