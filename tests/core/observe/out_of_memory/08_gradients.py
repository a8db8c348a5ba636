"""The parameters alone take half of the card; backward wants the same again for their gradients."""

import torch
from torch import nn

words = nn.Embedding(165_000, 512).to("cuda")
optimizer = torch.optim.SGD(words.parameters(), lr=0.5)

for _ in range(3):
    tokens = torch.randint(165_000, (64,), device="cuda")
    optimizer.zero_grad()
    words(tokens).square().sum().backward()
    optimizer.step()
