# One Parameter under two names: the tie survives every move.
# input: 2x6:int64
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 12)
        self.out = nn.Linear(12, 40, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, ids):
        return self.out(self.embedding(ids))
