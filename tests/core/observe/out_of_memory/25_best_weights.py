"""The best weights so far are kept on the card, beside the model, its gradients and what Adam has."""

import copy

import torch
from torch import nn

model = nn.Sequential(*[nn.Linear(2688, 2688) for _ in range(4)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
best = None
for _ in range(3):
    loss = model(torch.randn(4, 2688, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    best = copy.deepcopy(model.state_dict())
