# Sees: "Expected all tensors to be on the same device" in the loss, whose weights are a buffer of a criterion in a
# list.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 3)
        self.criteria = [nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 3.0]))]  # defect: unregistered-module

    def forward(self, x):
        y = self.fc(x)
        return sum(criterion(y, (y > 0).to(y.dtype)) for criterion in self.criteria)
