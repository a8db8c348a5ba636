# Sees: nothing wrong: the backbone is frozen and runs under no_grad.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 8)).requires_grad_(False)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        with torch.no_grad():
            code = self.backbone(x)
        return self.head(code.detach())
