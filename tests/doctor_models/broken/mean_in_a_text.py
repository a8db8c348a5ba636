# Sees: a text for the progress bar is made in forward, with a value of the GPU.
# input: 4x12
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        y = self.fc(x)
        text = f"mean {y.mean():.3f}"  # defect: hidden-sync
        self.text = text
        return y
