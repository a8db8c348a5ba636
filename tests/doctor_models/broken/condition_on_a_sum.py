# Sees: one if per layer, and the profile is full of cudaStreamSynchronize.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        x = self.fc(x)
        if x.sum() > 0:  # defect: hidden-sync
            x = x - x.mean()
        return x
