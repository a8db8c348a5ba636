"""Trains, then evaluates in the mode for evaluation, with the graph of every batch still recorded."""

import torch
from torch import nn
from torch.nn import functional

model = nn.Sequential(nn.Linear(64, 1024), nn.GELU(), nn.Dropout(0.1), nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train():
    model.train()
    for _ in range(3):
        loss = functional.cross_entropy(model(torch.randn(512, 64).cuda()), torch.randint(10, (512,)).cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate():
    model.eval()
    predictions = []
    for _ in range(100):
        predictions.append(model(torch.randn(4096, 64).cuda()))
    return torch.cat(predictions).argmax(1)


train()
print(validate().shape)
