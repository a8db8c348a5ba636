# Sees: a mixture of experts that fails on the GPU in the first expert; the checkpoint has the gate only.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, experts=3):
        super().__init__()
        self.gate = nn.Linear(12, experts)
        self.experts = []  # defect: unregistered-module
        for _ in range(experts):
            self.experts.append(nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 12)))

    def forward(self, x):
        weights = torch.softmax(self.gate(x), dim=-1)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return (outputs * weights.unsqueeze(1)).sum(-1)
