"""Hooks collect the gradients of every step, in a list for each parameter."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
seen = {name: [] for name, _ in model.named_parameters()}
for name, parameter in model.named_parameters():
    parameter.register_hook(seen[name].append)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    loss = model(torch.randn(16, 1024, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
