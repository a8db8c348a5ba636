# Sees: works on the first card of one machine; on the second card, and without a card, it does not.
# input: 4x12
# device: vgpu:1
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        noise = torch.randn_like(x, device="cpu").cuda()  # defect: hard-coded-device
        return self.fc(x + noise)
