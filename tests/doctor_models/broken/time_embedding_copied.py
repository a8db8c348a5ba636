# Sees: the frequencies of a diffusion model's time embedding are computed on the CPU and brought over in every call.
# input: 4x12,4
import math

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x, t):
        rates = torch.exp(-math.log(10000.0) * torch.arange(6) / 6).to(t.device)  # defect: device-hop
        angles = t[:, None] * rates[None, :]
        return self.fc(x) + torch.cat((angles.sin(), angles.cos()), dim=-1)
