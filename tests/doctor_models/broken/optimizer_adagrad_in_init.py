# Sees: Adagrad makes its sums when it is made, on the CPU; the first step on the GPU finds two devices.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 4)
        self.optimizer = torch.optim.Adagrad(self.parameters(), lr=0.1)  # defect: optimizer-before-move

    def forward(self, x):
        return self.fc(x)
