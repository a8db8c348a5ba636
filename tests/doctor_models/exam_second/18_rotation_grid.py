import math

import torch
import torch.nn.functional as F
from torch import nn


def rotation(degrees):
    a = math.radians(degrees)
    return torch.tensor([[math.cos(a), -math.sin(a), 0.0], [math.sin(a), math.cos(a), 0.0]])


class RotateImage(nn.Module):
    def __init__(self, degrees):
        super().__init__()
        self.degrees = degrees

    def forward(self, x):
        theta = rotation(self.degrees).unsqueeze(0).expand(x.size(0), -1, -1)
        grid = F.affine_grid(theta, list(x.size()), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False, padding_mode="border")


class TestTimeAugmented(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.views = nn.ModuleList([nn.Identity(), RotateImage(10), RotateImage(-10)])
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes)
        )

    def forward(self, x):
        if self.training:
            return self.net(x)
        return torch.stack([self.net(view(x)).softmax(-1) for view in self.views]).mean(0)
