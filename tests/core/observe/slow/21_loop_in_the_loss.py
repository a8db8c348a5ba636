"""The loss goes through all pairs of a batch, one after the other."""

import torch
from torch import nn

torch.set_num_threads(1)


class Apart(nn.Module):
    def closeness(self, one, other):
        return (one - other).square().sum().neg().exp()

    def forward(self, vectors):
        total = vectors.new_zeros(())
        for i in range(len(vectors)):
            for j in range(i):
                total = total + self.closeness(vectors[i], vectors[j])
        return total


model, criterion = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)), Apart()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs = torch.randn(20, 32)
for _ in range(30):
    loss = criterion(model(inputs))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
