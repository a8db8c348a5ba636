# Numbers of columns are Python's, not a tensor.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.order = [3, 1, 2, 0]
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x[:, self.order])
