# Nearest vectors by cdist and argmin; the losses use .detach() on either side.
# input: 6x8
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(8, 8)
        self.codes = nn.Embedding(10, 8)

    def forward(self, x):
        z = self.encode(x)
        nearest = self.codes(torch.cdist(z, self.codes.weight).argmin(-1))
        loss = (nearest - z.detach()).square().mean() + 0.25 * (nearest.detach() - z).square().mean()
        return (z + (nearest - z).detach()).mean() + loss
