# Sees: the auxiliary head does not learn: its result is computed and dropped.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.auxiliary = nn.Linear(12, 2)  # defect: no-gradient
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        x = self.fc(x)
        self.auxiliary(x)
        return self.head(x)
