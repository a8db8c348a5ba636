# Sees: the loss is computed in forward, and its class weights are on the CPU.
# input: 6x12,6:int64
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 3)
        self.weights = torch.tensor([1.0, 2.0, 0.5])  # defect: unregistered-tensor

    def forward(self, x, target):
        return nn.functional.cross_entropy(self.fc(x), target, weight=self.weights)
