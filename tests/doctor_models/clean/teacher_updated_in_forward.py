# Sees: nothing wrong: forward itself moves the teacher's weights, which is all that changes them.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Linear(12, 8)
        self.teacher = nn.Linear(12, 8)

    def forward(self, x):
        with torch.no_grad():
            for kept, new in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                kept.mul_(0.99).add_(new, alpha=0.01)
            wanted = self.teacher(x)
        return self.student(x) - wanted
