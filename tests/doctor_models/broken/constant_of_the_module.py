# Sees: a constant at the top of the file; it is on the CPU, whoever imports it.
# input: 4x3
import torch
from torch import nn

LUMA = torch.tensor([0.299, 0.587, 0.114])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return self.fc(x) * LUMA  # defect: mixed-devices
