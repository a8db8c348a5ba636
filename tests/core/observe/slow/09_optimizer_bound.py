"""A dense table of many words and a batch of eight: the optimizer goes through the whole table."""

import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Embedding(20_000, 64), nn.Flatten(), nn.Linear(64 * 4, 2))
optimizer = torch.optim.Adam(model.parameters())
words, labels = torch.randint(20_000, (8, 4)), torch.randint(2, (8,))
for _ in range(60):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(words), labels).backward()
    optimizer.step()
