"""Texts are padded to the longest of their batch, and one is much longer than all others."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

model = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for longest in (40, 50, 30_000):
    texts = [torch.randint(1000, (20,)) for _ in range(15)] + [torch.randint(1000, (longest,))]
    loss = model(pad_sequence(texts, batch_first=True).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
