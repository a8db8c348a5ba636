"""Each of many small epochs makes a DataLoader, whose workers have to start."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def ready(worker):
    time.sleep(0.02)


torch.set_num_threads(1)
points = TensorDataset(torch.randn(64, 8))
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(6):
    for (inputs,) in DataLoader(points, batch_size=16, num_workers=1, worker_init_fn=ready):
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
