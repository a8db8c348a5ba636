"""A gradient of its own for each sample, one backward after the other."""

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, labels = torch.randn(48, 128), torch.randint(10, (48,))
for _ in range(40):
    optimizer.zero_grad()
    losses = nn.functional.cross_entropy(model(inputs), labels, reduction="none")
    for loss in losses:
        loss.backward(retain_graph=True)
    optimizer.step()
