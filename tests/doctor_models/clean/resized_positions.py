# A position embedding that is resized to its input.
# input: 2x3x8x8
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Conv2d(3, 3, 1)
        self.pos = nn.Parameter(torch.randn(1, 3, 4, 4))

    def forward(self, x):
        return self.fc(x) + nn.functional.interpolate(self.pos, size=x.shape[-2:], mode="bicubic")
