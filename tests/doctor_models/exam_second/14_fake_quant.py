import torch
import torch.nn.functional as F
from torch import nn


class QuantConv2d(nn.Module):
    def __init__(self, inp, out, kernel=3, bits=8):
        super().__init__()
        self.low, self.high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        self.weight = nn.Parameter(torch.randn(out, inp, kernel, kernel) * 0.1)
        self.bias = nn.Parameter(torch.zeros(out))
        self.zero_point = torch.zeros(out, dtype=torch.int32)

    def quantized_weight(self):
        scale = self.weight.detach().abs().amax(dim=(1, 2, 3)) / self.high
        return torch.fake_quantize_per_channel_affine(
            self.weight, scale.clamp(min=1e-8), self.zero_point, 0, self.low, self.high
        )

    def forward(self, x):
        return F.conv2d(x, self.quantized_weight(), self.bias, padding=1)


class QATNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = QuantConv2d(3, 8)
        self.conv2 = QuantConv2d(8, 8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc(x.mean(dim=(2, 3)))
