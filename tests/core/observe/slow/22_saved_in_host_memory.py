"""What backward needs is kept in host memory, although the card has room for it."""

import torch
from torch import nn

model = nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.Sigmoid()) for _ in range(6))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.zeros(512, 128, device="cuda")
for _ in range(12):
    with torch.autograd.graph.save_on_cpu():
        loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
