# Two halves on two cards, with the one hop that this needs: it is a note.
# input: 4x12
# virtual: 2x Tesla T4
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 16)
        self.second = nn.Linear(16, 4)

    def to(self, device):
        device = torch.device(device)
        self.first.to(device)
        self.second.to(torch.device(device.type, 1))
        return self

    def forward(self, x):
        x = self.first(x).relu()
        return self.second(x.to(self.second.weight.device))
