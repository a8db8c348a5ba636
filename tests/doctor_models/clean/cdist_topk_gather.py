# Neighbours by distance, gathered by index on the device.
# input: 6x8
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 4)

    def forward(self, x):
        d = torch.cdist(x, x)
        nearest = d.topk(3, largest=False).indices
        y = self.lin(x)
        return torch.gather(y.expand(6, 6, 4), 1, nearest[..., None].expand(-1, -1, 4)).amax(1)
