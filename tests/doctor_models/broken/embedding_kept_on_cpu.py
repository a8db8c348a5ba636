# Sees: the embedding is too large for the card and stays on the CPU on purpose; the ids arrive on the GPU.
# input: 2x6:int64
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 12)
        self.body = nn.Linear(12, 4)

    def _apply(self, fn, recurse=True):
        self.body._apply(fn, recurse)
        return self

    def forward(self, ids):
        vectors = self.embedding(ids)  # defect: mixed-devices
        return self.body(vectors)
