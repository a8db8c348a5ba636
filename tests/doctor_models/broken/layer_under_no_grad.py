# Sees: the encoder was frozen for an experiment; it still is.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        with torch.no_grad():  # defect: cut-from-autograd
            code = self.encoder(x).relu()
        return self.head(code)
