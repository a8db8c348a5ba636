"""A running average of the weights is kept in host memory: all of them are copied there in each step."""

import torch
from torch import nn


def update(average, model):
    for name, value in model.state_dict().items():
        average[name].mul_(0.99).add_(value.cpu(), alpha=0.01)


model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
average = {name: value.cpu() for name, value in model.state_dict().items()}
inputs = torch.zeros(4, 1024, device="cuda")
for _ in range(20):
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    update(average, model)
