# Sees: nothing wrong: the target network is a copy, which the training script updates, and it runs without gradients.
# input: 4x12
# train
import copy

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))
        self.target = copy.deepcopy(self.online)

    def forward(self, x):
        with torch.no_grad():
            wanted = self.target(x).amax(dim=-1, keepdim=True)
        return (self.online(x) - wanted).square()
