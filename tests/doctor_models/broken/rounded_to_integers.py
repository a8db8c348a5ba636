# Sees: quantising the code makes the encoder deaf; there is no straight-through term.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 8)
        self.table = nn.Embedding(16, 8)

    def forward(self, x):
        codes = self.encoder(x).clamp(0, 15).long()  # defect: cut-from-autograd
        return self.table(codes)
