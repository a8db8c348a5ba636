# Whether there is CUDA decides about a number only.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.chunks = 1 if torch.cuda.is_available() else 4
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        return torch.cat([self.fc(part) for part in x.chunk(self.chunks)])
