# Sees: a tensor type from the time before torch.device.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        start = torch.cuda.FloatTensor(x.shape[0], 12).zero_()  # defect: hard-coded-device
        return self.fc(x) + start
