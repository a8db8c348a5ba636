"""A cross-validation keeps the model and the optimizer of each fold."""

import torch
from torch import nn

folds = []
for _ in range(8):
    model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _step in range(2):
        loss = model(torch.randn(16, 2048, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    folds.append({"model": model, "optimizer": optimizer})
