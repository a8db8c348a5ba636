# Sees: one optimizer per part, in a list, each with its state of before the move.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.opts = [torch.optim.Adagrad(self.fc.parameters())]  # defect: optimizer-before-move

    def forward(self, x):
        return self.fc(x)
