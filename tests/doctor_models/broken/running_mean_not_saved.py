# Sees: evaluation is fine after training and bad after loading: what was counted in training is not in the file.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.register_buffer("mean", torch.zeros(12), persistent=False)  # defect: unsaved-buffer

    def forward(self, x):
        x = self.fc(x)
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x - self.mean
