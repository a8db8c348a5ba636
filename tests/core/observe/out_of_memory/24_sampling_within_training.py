"""Training calls a function that samples with the model in eval mode, each step from the one before, and recorded."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(64, 1024), nn.GELU(), nn.Linear(1024, 64)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def sample(count):
    model.eval()
    state = torch.randn(count, 64, device="cuda")
    for _ in range(100):
        state = state - 0.01 * model(state)
    model.train()
    return state


def train():
    for _ in range(2):
        loss = model(torch.randn(512, 64, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sample(4096)


train()
