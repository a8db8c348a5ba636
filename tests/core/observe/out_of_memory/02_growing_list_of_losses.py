"""One backward at the end of an epoch, through the losses of all its batches."""

import torch
from torch import nn
from torch.nn import functional

model = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 64)).to("cuda")
optimizer = torch.optim.Adam(model.parameters())


def train_epoch(batches):
    losses = []
    for _ in range(batches):
        inputs = torch.randn(4096, 64, device="cuda")
        losses.append(functional.mse_loss(model(inputs), inputs))
    optimizer.zero_grad()
    torch.stack(losses).mean().backward()
    optimizer.step()


for _ in range(2):
    train_epoch(100)
