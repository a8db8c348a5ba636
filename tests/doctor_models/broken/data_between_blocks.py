# Sees: the first blocks never change.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(12, 12) for _ in range(4))

    def forward(self, x):
        for index, block in enumerate(self.blocks):
            x = block(x).relu()
            if index == 1:
                x = x.data  # defect: cut-from-autograd
        return x
