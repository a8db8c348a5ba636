"""A method is cached, and what the cache keeps has its graph."""

from functools import cache

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 1024), nn.GELU(), nn.Linear(1024, 64))

    @cache  # noqa: B019 (that is the mistake)
    def encoded(self, number):
        return self.layers(torch.full((1024, 64), float(number), device="cuda")).mean(0)

    def forward(self, number):
        return self.encoded(number)


model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(200):
    loss = model(number).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
