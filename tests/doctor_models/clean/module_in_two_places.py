# One layer that runs twice, under two names.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(12, 12)
        self.blocks = nn.ModuleList([self.shared, nn.ReLU(), self.shared])
        self.early = nn.Sequential(*self.blocks[:2])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.early(x)
