"""Forward and backward fit; then Adam makes its two averages of every parameter."""

import torch
from torch import nn
from torch.nn import functional


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(90_000, 512)
        self.head = nn.Linear(512, 10)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


model = Tagger().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for _ in range(3):
    tokens = torch.randint(90_000, (8, 32)).cuda()
    labels = torch.randint(10, (8, 32)).cuda()
    loss = functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
