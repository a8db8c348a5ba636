import torch
import torch.nn.functional as F
from torch import nn

EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]


def normalised_adjacency(edges, nodes):
    dense = torch.eye(nodes)
    for a, b in edges:
        dense[a, b] = dense[b, a] = 1.0
    scale = dense.sum(1).rsqrt()
    return (scale[:, None] * dense * scale).to_sparse_coo()


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs, adjacency):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.adjacency = adjacency

    def forward(self, h):
        return torch.sparse.mm(self.adjacency, self.linear(h))


class GCN(nn.Module):
    def __init__(self, features=8, classes=3):
        super().__init__()
        adjacency = normalised_adjacency(EDGES, 5)
        self.first = GraphConv(features, 16, adjacency)
        self.second = GraphConv(16, classes, adjacency)

    def forward(self, features):
        return self.second(F.relu(self.first(features)))
