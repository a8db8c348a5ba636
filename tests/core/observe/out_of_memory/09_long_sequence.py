"""Attention written out: for 4,096 tokens it holds a matrix of 4,096 by 4,096 for each head."""

import math

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.project(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))


model = nn.Sequential(Attention(64, 4), Attention(64, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for length in (512, 1024, 4096):
    optimizer.zero_grad()
    model(torch.randn(1, length, 64, device="cuda")).square().mean().backward()
    optimizer.step()
