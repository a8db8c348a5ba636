# Sees: each part sends its input to "cuda", as the training script once did.
# input: 4x12
# device: vgpu:1
from torch import nn


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        return self.fc(x.to("cuda"))  # defect: hard-coded-device


def make():
    return nn.Sequential(Part(), nn.ReLU())
