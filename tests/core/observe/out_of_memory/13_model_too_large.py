"""A model in float32 whose parameters need more than the card has."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.utils.skip_init(nn.Linear, width, 4 * width)
        self.down = nn.utils.skip_init(nn.Linear, 4 * width, width)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Large(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))

    def forward(self, x):
        return self.blocks(x)


model = Large(2048, 6).to("cuda")
print(model(torch.randn(1, 2048, device="cuda")).shape)
