import torch
from torch import nn


def standardize(
    images,
    mean=torch.tensor([0.485, 0.456, 0.406]),
    std=torch.tensor([0.229, 0.224, 0.225]),
):
    return (images - mean.view(3, 1, 1)) / std.view(3, 1, 1)


class Backbone(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, images):
        return self.norm(self.stem(standardize(images))).relu().mean(dim=(2, 3))
