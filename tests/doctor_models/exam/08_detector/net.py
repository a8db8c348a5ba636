from torch import nn

from .anchors import grid_anchors
from .boxes import decode


class Detector(nn.Module):
    def __init__(self, classes=4, stride=8):
        super().__init__()
        self.stride = stride
        self.backbone = nn.Sequential(nn.Conv2d(3, 16, 3, 4, 1), nn.SiLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.SiLU())
        self.deltas = nn.Conv2d(32, 4, 1)
        self.scores = nn.Conv2d(32, classes, 1)

    def forward(self, images):
        maps = self.backbone(images)
        centres = grid_anchors(maps.shape[2], maps.shape[3], self.stride)
        deltas = self.deltas(maps).flatten(2).transpose(1, 2)
        return decode(centres, deltas, self.stride), self.scores(maps).flatten(2).transpose(1, 2)
