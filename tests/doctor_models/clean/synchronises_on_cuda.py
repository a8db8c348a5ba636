# Synchronisation that is asked for on CUDA only.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)

    def forward(self, x):
        if x.is_cuda:
            torch.cuda.synchronize()
        return self.fc(x)
