# no_grad where initial values are set, not in forward.
# input: 2x3x8x8
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.reset_parameters()

    def reset_parameters(self):
        with torch.no_grad():
            self.conv.weight.copy_(torch.randn(self.conv.weight.shape) * 0.1)
            self.conv.bias.data.zero_()

    def forward(self, x):
        x = x.contiguous(memory_format=torch.channels_last)
        return self.norm(self.conv(x)).relu().mean((2, 3))
