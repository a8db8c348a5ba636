"""A moving average of the loss, for a smooth curve, that leads back to every step before."""

import torch
from torch import nn
from torch.nn import functional

device = torch.device("cuda")
model = nn.Sequential(nn.Linear(64, 1024), nn.Tanh(), nn.Linear(1024, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
average = torch.zeros((), device=device)

for _ in range(200):
    inputs, labels = torch.randn(4096, 64), torch.randint(10, (4096,))
    loss = functional.cross_entropy(model(inputs.to(device)), labels.to(device))
    average = 0.9 * average + 0.1 * loss
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
