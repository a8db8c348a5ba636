from torch import nn


class GraphReadout(nn.Module):
    def __init__(self, features=8, classes=2):
        super().__init__()
        self.node = nn.Linear(features, 16)
        self.head = nn.Linear(16, classes)

    def forward(self, nodes, batch):
        h = self.node(nodes).relu()
        graphs = int(batch.max()) + 1
        pooled = h.new_zeros(graphs, h.size(1)).index_add(0, batch, h)
        return self.head(pooled)
