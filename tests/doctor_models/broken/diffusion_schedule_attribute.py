# Sees: "indices should be either on cpu or on the same device as the indexed tensor (cpu)".
# input: 4x12,4:int64
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, steps=50):
        super().__init__()
        self.denoise = nn.Linear(12, 12)
        betas = torch.linspace(1e-4, 0.02, steps)
        self.kept = torch.cumprod(1 - betas, dim=0)  # defect: unregistered-tensor

    def forward(self, x, t):
        kept = self.kept[t].unsqueeze(1)
        return kept.sqrt() * self.denoise(x)
