# Sees: the first batch fills a buffer, on the first card.
# input: 4x12
# device: vgpu:1
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.register_buffer("mean", None)

    def forward(self, x):
        if self.mean is None:
            self.mean = torch.zeros(12).to("cuda:0")  # defect: hard-coded-device
        return self.fc(x - self.mean)
