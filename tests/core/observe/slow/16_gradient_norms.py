"""The norm of every gradient is read after each backward: it is worked out on the card, and waited for."""

import torch
from torch import nn

model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(40)), nn.Linear(16, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.zeros(8, 16, device="cuda")
history = []
for _ in range(20):
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for _, parameter in model.named_parameters():
        history.append((parameter.grad.norm().item(), parameter.grad.abs().mean().item()))
    optimizer.step()
