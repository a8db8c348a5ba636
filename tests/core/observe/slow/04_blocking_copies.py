"""Large float32 pictures are copied to the card at every step, from memory that is not pinned; the model is tiny."""

import torch
from torch import nn

device = torch.device("cuda")
model = nn.Sequential(nn.Conv2d(3, 4, 8, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10))
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
pictures, labels = torch.zeros(64, 3, 224, 224), torch.zeros(64, dtype=torch.long)
for _ in range(20):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(pictures.to(device)), labels.to(device))
    loss.backward()
    optimizer.step()
