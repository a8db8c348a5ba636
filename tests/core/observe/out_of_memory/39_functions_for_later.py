"""Metrics are left for later as functions, which keep what they were made of."""

import torch
from torch import nn

model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
later = []
for _ in range(100):
    inputs = torch.randn(1024, 1024, device="cuda")
    outputs = model(inputs)
    loss = (outputs - inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    later.append(("error", lambda inputs=inputs, outputs=outputs: (inputs - outputs).abs().mean()))
