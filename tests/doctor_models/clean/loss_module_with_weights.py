# Class weights inside a loss that is a module: a buffer of it.
# input: 4x12,4:int64
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 2)
        self.loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]), label_smoothing=0.1)

    def forward(self, x, y):
        return self.loss(self.fc(x), y)
