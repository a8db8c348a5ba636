# Sees: input and output embedding are meant to be one; on the GPU they part, and the model has twice the memory there.
# input: 2x6:int64
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(40, 12)
        self.out = nn.Linear(12, 40, bias=False)
        self.out.weight = nn.Parameter(self.embedding.weight.data)  # defect: tie-lost

    def forward(self, ids):
        return self.out(self.embedding(ids))
