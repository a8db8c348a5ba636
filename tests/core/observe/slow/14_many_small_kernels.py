"""A deep and narrow network on small batches: the card waits for the next kernel most of the time."""

import torch
from torch import nn

model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(40)), nn.Linear(16, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.zeros(8, 16, device="cuda")
for _ in range(12):
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
