# Sees: a constant of the class, shared by all its objects: no object's .to() reaches it.
# input: 4x3
import torch
from torch import nn


class Net(nn.Module):
    MEAN = torch.tensor([0.5, 0.4, 0.3])  # defect: unregistered-tensor

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x - self.MEAN)
