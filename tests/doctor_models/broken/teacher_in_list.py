# Sees: the list hides the teacher from parameters(), as intended, and from .to(), as not.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Linear(12, 5)
        teacher = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
        self.teacher = [teacher.requires_grad_(False)]  # defect: unregistered-module

    def forward(self, x):
        with torch.no_grad():
            target = self.teacher[0](x).softmax(-1)
        return -(target * self.student(x).log_softmax(-1)).sum(-1).mean()
