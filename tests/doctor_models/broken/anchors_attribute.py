# Sees: a detector whose boxes cannot be decoded on the GPU.
# input: 2x8x4x4
import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Conv2d(8, 3 * 4, 1)
        self.anchors = torch.tensor([[10.0, 13.0], [16.0, 30.0], [33.0, 23.0]])  # defect: unregistered-tensor

    def forward(self, features):
        raw = self.head(features).unflatten(1, (3, 4))
        sizes = raw[:, :, 2:].exp() * self.anchors.view(1, 3, 2, 1, 1)
        return torch.cat((raw[:, :, :2].sigmoid(), sizes), dim=2)


def make():
    return Detector()
