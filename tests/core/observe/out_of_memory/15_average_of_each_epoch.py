"""The weights of each epoch are kept to choose the best of them in the end."""

import copy

import torch
from torch import nn


class Best:
    def __init__(self):
        self.of_epoch = {}

    def remember(self, epoch, loss, model):
        self.of_epoch[epoch] = (loss, copy.deepcopy(model))


best = Best()
model = nn.Linear(1024, 4096).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(50):
    loss = model(torch.zeros(4, 1024, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    best.remember(epoch, loss.item(), model)
