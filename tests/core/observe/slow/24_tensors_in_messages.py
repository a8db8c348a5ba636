"""Messages for debugging have whole tensors in them, though nobody reads them."""

import torch
from torch import nn

model = nn.Linear(8, 12).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.rand(64, 8, device="cuda")
for step in range(20):
    outputs = model(inputs)
    loss = outputs.square().mean()
    message = f"step {step}: outputs {outputs}, loss {loss}"
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
