# Sees: the constant at the top of the file decides where forward's tensors are.
# input: 4x12
# device: vgpu:1
import torch
from torch import nn

DEVICE = "cuda:0"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        offset = torch.ones(12, device=DEVICE)  # defect: hard-coded-device
        return self.fc(x + offset)
