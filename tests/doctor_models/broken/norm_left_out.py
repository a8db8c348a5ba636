# Sees: DistributedDataParallel says that a parameter was not part of the loss.
# input: 4x12
# train
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.norm = nn.LayerNorm(12)  # defect: no-gradient
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.fc(x))
