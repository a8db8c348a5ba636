"""The losses are kept with their graphs."""

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
losses = []
for _ in range(60):
    optimizer.zero_grad()
    inputs = torch.randn(128, 256)
    loss = model(inputs).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()
    losses.append(loss)
print(float(sum(losses)))
