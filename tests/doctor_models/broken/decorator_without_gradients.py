# Sees: @torch.no_grad() was put on a helper for evaluation, and training calls it too.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 8)
        self.head = nn.Linear(8, 3)

    @torch.no_grad()  # defect: cut-from-autograd
    def encode(self, x):
        return self.encoder(x).relu()

    def forward(self, x):
        return self.head(self.encode(x))
