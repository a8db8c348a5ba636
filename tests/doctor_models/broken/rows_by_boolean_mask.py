# Sees: how many rows are left is known on the GPU only, so indexing with a mask waits for it.
# input: 6x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        scores = self.fc(x)
        positive = scores[scores > 0]  # defect: hidden-sync
        return positive.mean()
