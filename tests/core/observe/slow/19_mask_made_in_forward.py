"""Each forward makes its mask in Python, while the card has nothing to do."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(32, 96)

    def forward(self, inputs):
        length = inputs.shape[1]
        mask = [[0.0 if column <= row else -100.0 for column in range(length)] for row in range(length)]
        query, key, value = self.project(inputs).chunk(3, -1)
        scores = query @ key.transpose(1, 2) + torch.tensor(mask).to(inputs.device)
        return scores.softmax(-1) @ value


model = nn.Sequential(Attention(), nn.Linear(32, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.zeros(2, 256, 32, device="cuda")
for _ in range(24):
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
