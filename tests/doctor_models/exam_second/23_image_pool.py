from collections import deque

import torch
from torch import nn


class ImagePool:
    """The discriminator also sees images that earlier generators made (CycleGAN)."""

    def __init__(self, size=50):
        self.images = deque(maxlen=size)

    def query(self, images):
        for image in images:
            self.images.append(image.detach().cpu())
        old = torch.stack(list(self.images)[: images.size(0)])
        return torch.cat([images, old], dim=0)


class PooledGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Conv2d(3, 3, 3, padding=1)
        self.discriminator = nn.Sequential(nn.Conv2d(3, 8, 4, stride=2), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 3))
        self.pool = ImagePool()

    def forward(self, x):
        fake = torch.tanh(self.generator(x))
        return self.discriminator(self.pool.query(fake)).mean()
