"""Image models: LeNet, VGG with batch norm, ResNet-18 and ResNet-50. Built on the jobs thread.

Layouts and parameter counts follow the papers and torchvision's models of the same names, so that `state_dict` keys
match torchvision's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

VGG11: tuple[int, ...] = (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0)
VGG16: tuple[int, ...] = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
"""Channels of each 3×3 convolution; 0 means a 2×2 max pooling (Simonyan and Zisserman 2014, columns A and D)."""
VGG_FEATURES = 4096
"""Of the two hidden layers of a VGG's classifier."""


def lenet() -> nn.Module:
    """LeNet-5 for 28×28 images: two convolutions, three linear layers, 61,706 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.Sigmoid(),
        nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.Sigmoid(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.Sigmoid(),
        nn.Linear(120, 84),
        nn.Sigmoid(),
        nn.Linear(84, 10),
    )


class VGG(nn.Module):
    """VGG with batch norm after each convolution: (batch, 3, 224, 224) → (batch, 1000)."""

    def __init__(self, plan: Sequence[int]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width in plan:
            if width == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            channels = width
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(channels * 49, VGG_FEATURES),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(VGG_FEATURES, VGG_FEATURES),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(VGG_FEATURES, 1000),
        )

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.classifier(self.avgpool(self.features(x)).flatten(1)))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut, which is a 1×1 convolution where size or width change."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != width:
            self.downsample = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return cast(Tensor, self.relu(x + shortcut))


class Bottleneck(nn.Module):
    """A 3×3 convolution between two of 1×1, of which the last has four times the width; the stride is that of the 3×3
    (version 1.5)."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        wide = width * 4
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, wide, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(wide)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or channels != wide:
            self.downsample = nn.Sequential(nn.Conv2d(channels, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return cast(Tensor, self.relu(self.bn3(self.conv3(x)) + shortcut))


class ResNet(nn.Module):
    """A residual network (He et al. 2015): (batch, 3, 224, 224) → (batch, 1000). `depths` are the blocks of its four
    stages."""

    def __init__(self, block: type[BasicBlock] | type[Bottleneck], depths: tuple[int, int, int, int]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        channels, grows = 64, 4 if block is Bottleneck else 1
        for index, (width, depth) in enumerate(zip((64, 128, 256, 512), depths, strict=True), start=1):
            first = block(channels, width, 1 if index == 1 else 2)
            channels = width * grows
            self.add_module(
                f"layer{index}", nn.Sequential(first, *(block(channels, width, 1) for _ in range(depth - 1)))
            )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for index in range(1, 5):
            x = self.get_submodule(f"layer{index}")(x)
        return cast(Tensor, self.fc(torch.flatten(self.avgpool(x), 1)))
