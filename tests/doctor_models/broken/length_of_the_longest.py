# Sees: the batch is cut to its longest sequence; int() of a tensor waits for the GPU.
# input: 4x6x12,4:int64
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x, lengths):
        longest = int(lengths.max()) + 1  # defect: hidden-sync
        return self.fc(x[:, :longest])
