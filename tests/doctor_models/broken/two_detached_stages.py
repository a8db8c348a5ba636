# Sees: only the last stage learns; each of the others was detached on its own.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 12)
        self.second = nn.Linear(12, 12)
        self.third = nn.Linear(12, 12)

    def forward(self, x):
        x = self.first(x).relu().detach()  # defect: cut-from-autograd
        x = self.second(x).relu().detach()  # defect: cut-from-autograd
        return self.third(x)
