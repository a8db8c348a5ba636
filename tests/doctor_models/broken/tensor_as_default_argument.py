# Sees: the default of an argument is made once, when the file is read.
# input: 2x1x16
import torch
from torch import nn


def smooth(x, kernel=torch.ones(1, 1, 3) / 3):  # noqa: B008 - the defect's cause
    return nn.functional.conv1d(x, kernel, padding=1)  # defect: mixed-devices


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3)

    def forward(self, x):
        return self.conv(smooth(x))
