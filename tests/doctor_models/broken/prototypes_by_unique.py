# Sees: a mean of each class that waits for the labels; nothing of it on the CPU.
# input: 6x12,6:int64
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 4)

    def forward(self, x, labels):
        features = self.encoder(x)
        classes = torch.unique(labels)  # defect: hidden-sync
        return (labels == classes[:, None]).to(features.dtype) @ features
