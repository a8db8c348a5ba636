# Sees: a large table was kept out of the buffers and is fetched whole for every batch.
# input: 4:int64
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(200, 16)
        self.fc = nn.Linear(16, 4)

    def _apply(self, fn, recurse=True):
        self.fc._apply(fn, recurse)
        return self

    def forward(self, ids):
        table = self.table.weight.to(ids.device)  # defect: device-hop
        return self.fc(table[ids])
