# Sees: everything before the second block keeps its initial values: normalising was put under no_grad to save memory.
# input: 4x12
# train
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        with torch.no_grad():  # defect: cut-from-autograd
            x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
        return self.fc(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(12, 12)
        self.block = Block()

    def forward(self, x):
        return self.block(self.stem(x))
