# Sees: "expected self and value to be on the same device" where words are exchanged by chance.
# input: 2x8:int64
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 4)

    def forward(self, ids):
        ids = ids.clone()
        changed = torch.rand(ids.shape) < 0.5
        others = torch.randint(50, ids.shape)  # defect: default-device
        ids[changed] = others[changed]
        return self.tokens(ids)
