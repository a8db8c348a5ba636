# Sees: a few steps of warm-up in __init__ leave Adam's averages on the CPU; training goes on on the GPU and fails.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.optimizer = torch.optim.AdamW(self.fc.parameters(), lr=1e-3)  # defect: optimizer-before-move
        x = torch.randn(8, 12)
        for _ in range(2):
            self.optimizer.zero_grad()
            (self.fc(x) - x).square().mean().backward()
            self.optimizer.step()

    def forward(self, x):
        return self.fc(x)
