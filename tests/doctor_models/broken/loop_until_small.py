# Sees: a while loop over a norm: the host waits before every turn.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        y = self.fc(x)
        while y.norm() > 1:  # defect: hidden-sync
            y = y / 2
        return y
