# Sees: a dict of tables at the top of the file.
# input: 4x12
import torch
from torch import nn

TABLE = {"gelu": torch.linspace(-1, 1, 12)}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        return self.fc(x) + TABLE["gelu"]  # defect: mixed-devices
