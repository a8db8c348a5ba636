"""Batches come from a thread, which is slower than the model."""

import queue
import threading
import time

import torch
from torch import nn

batches = queue.Queue(maxsize=2)


def read():
    for _ in range(40):
        time.sleep(0.02)
        batches.put(torch.randn(16, 32))


threading.Thread(target=read).start()
model = nn.Linear(32, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(40):
    inputs = batches.get()
    optimizer.zero_grad()
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
