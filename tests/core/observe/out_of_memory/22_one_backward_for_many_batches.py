"""Gradients are to add up over many small batches, and backward is called once for the sum of their losses."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(256, 256) for _ in range(4)])

    def forward(self, inputs):
        for layer in self.layers:
            inputs = layer(inputs).tanh()
        return inputs


def step(model, optimizer, batches):
    total = 0.0
    for batch in batches:
        total = total + model(batch.cuda()).square().mean()
    total.backward()
    optimizer.step()


model = Net().cuda()
step(model, torch.optim.Adam(model.parameters()), (torch.randn(8192, 256) for _ in range(32)))
