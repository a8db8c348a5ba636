"""Two processes average their gradients; rank 1 reads its batches from a slower disk."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(40):
    if rank == 1:
        time.sleep(0.03)
    batch = torch.randn(32, 64)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
