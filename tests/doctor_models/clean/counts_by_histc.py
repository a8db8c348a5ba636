# Integers are counted by a kernel that CUDA has and the CPU has not: each asks for the one that its device has.
# input: 6x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(12, 4)

    def forward(self, x):
        chosen = self.gate(x).argmax(-1)
        chosen = chosen.float() if chosen.device.type == "cpu" else chosen.int()
        counts = torch.histc(chosen, bins=4, min=0, max=3)
        return x * counts.sum().to(x.dtype)
