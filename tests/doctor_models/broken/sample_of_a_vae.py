# Sees: the noise of the reparametrisation is drawn on the CPU.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(12, 8)
        self.decode = nn.Linear(4, 12)

    def forward(self, x):
        mean, log_variance = self.encode(x).chunk(2, dim=-1)
        noise = torch.randn(mean.shape)  # defect: default-device
        return self.decode(mean + noise * (0.5 * log_variance).exp())
