"""Three of four batches are there at once; the fourth one comes from a slow disk."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)


class Shards(IterableDataset):
    def __iter__(self):
        for number in range(60):
            if number % 4 == 3:
                time.sleep(0.08)
            yield torch.randn(64, 256), torch.randn(64, 256)


model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
optimizer = torch.optim.AdamW(model.parameters())
for inputs, targets in DataLoader(Shards(), batch_size=None):
    loss = nn.functional.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
