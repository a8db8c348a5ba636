"""Two lists of a policy get a tensor at every move, each with its graph, and are never cleared."""

import torch
from torch import nn


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU())
        self.head = nn.Linear(64, 4)
        self.log_probabilities = []
        self.values = []

    def forward(self, view):
        found = self.body(view).mean((2, 3))
        return self.head(found).log_softmax(1), found.mean()


def play(policy, moves):
    for _ in range(moves):
        logits, value = policy(torch.rand(1, 4, 128, 128, device="cuda"))
        policy.log_probabilities.append(logits[0, 0])
        policy.values.append(value)
    return -torch.stack(policy.log_probabilities[-moves:]).sum()


policy = Policy().cuda()
optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
while True:
    loss = play(policy, 10)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
