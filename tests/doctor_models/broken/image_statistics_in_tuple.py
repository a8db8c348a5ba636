# Sees: the model normalises its images itself, with a mean and a deviation that stay on the CPU.
# input: 2x3x8x8
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.statistics = (  # defect: unregistered-tensor
            torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1),
            torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1),
        )

    def forward(self, images):
        mean, deviation = self.statistics
        return self.conv((images - mean) / deviation)
