# nn.Parameter around what was moved and scaled before: a leaf.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.gain = nn.Parameter((torch.randn(12) * 0.02).to(torch.float32).unsqueeze(0))
        self.temperature = nn.Parameter(torch.tensor(0.07).log())

    def forward(self, x):
        return x + self.fc(x) * self.gain * self.temperature.exp()
