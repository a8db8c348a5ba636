# Sees: functools.partial holds the filter, which is not moved.
# input: 2x1x8x8
import functools

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.blur = functools.partial(
            nn.functional.conv2d,
            weight=torch.full((1, 1, 3, 3), 1 / 9),  # defect: unregistered-tensor
            padding=1,
        )

    def forward(self, x):
        return self.conv(self.blur(x))
