"""Predictions are compared with labels one by one: each `.item()` waits for the card."""

import torch
from torch import nn

device = torch.device("cuda")
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(128, 64, device=device)
labels = torch.randint(10, (128,), device=device)
right = 0
for _ in range(20):
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = nn.functional.cross_entropy(outputs, labels)
    loss.backward()
    optimizer.step()
    for predicted, label in zip(outputs.detach().argmax(1), labels, strict=True):
        right += predicted.item() == label.item()
