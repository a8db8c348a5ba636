# A counter and a running mean as buffers that forward writes into.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 4)
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        y = self.fc(x)
        if self.training:
            with torch.no_grad():
                self.count.add_(1)
                self.mean.lerp_(y.mean(0), 1 / 10)
        return (y - self.mean) / self.count.clamp(min=1)
