"""Features of a data set are computed once and kept, on the card."""

import torch
from torch import nn

backbone = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()).cuda().eval()
features = {}

with torch.no_grad():
    for number in range(1000):
        images = torch.randn(16, 3, 64, 64).cuda()
        features[number] = backbone(images)
