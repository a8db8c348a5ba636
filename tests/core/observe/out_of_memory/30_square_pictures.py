"""Activations of 512 by 512 pixels are no attention matrices."""

import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 1, 1)).cuda()
model(torch.rand(16, 3, 512, 512, device="cuda")).square().mean().backward()
