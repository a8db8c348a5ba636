# Sees: the noise is drawn on the CPU and given the type of the input, which copies it over.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        noise = torch.randn(x.shape).type_as(x)  # defect: device-hop
        return self.fc(x + 0.1 * noise)
