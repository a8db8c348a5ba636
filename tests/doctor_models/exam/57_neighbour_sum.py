import torch
from torch import nn


class NeighbourSum(nn.Module):
    def __init__(self, features=8):
        super().__init__()
        edges = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
        self.register_buffer("source", edges[0].clone())
        self.register_buffer("target", edges[1].clone())
        self.message = nn.Linear(features, features)

    def forward(self, nodes):
        sent = self.message(nodes).index_select(0, self.source)
        return torch.zeros_like(nodes).index_add(0, self.target, sent)
