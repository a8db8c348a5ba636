"""A bank of negatives takes one token of each sample: a view, which keeps all tokens of its batch."""

import torch
from torch import nn

bank = {}
model = nn.Linear(64, 64).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    tokens = model(torch.zeros(32, 2048, 64, device="cuda"))
    optimizer.zero_grad()
    tokens.mean().backward()
    optimizer.step()
    for number, token in enumerate(tokens.detach()[:, 0]):
        bank[32 * step + number] = token
