"""A convolutional network on batches of 384 pictures."""

import torch
from torch import nn
from torch.nn import functional

model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(8, 8, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(8, 10),
).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(3):
    images = torch.randn(384, 3, 128, 128, device="cuda")
    labels = torch.randint(10, (384,), device="cuda")
    loss = functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
