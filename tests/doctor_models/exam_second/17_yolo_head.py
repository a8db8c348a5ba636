import torch
from torch import nn


class Detect(nn.Module):
    """Raw maps in training, decoded boxes in evaluation."""

    def __init__(self, channels=(8, 16), classes=3, strides=(8, 16)):
        super().__init__()
        self.no = classes + 5
        self.strides = strides
        self.grid = [torch.zeros(1) for _ in channels]
        self.m = nn.ModuleList(nn.Conv2d(c, self.no, 1) for c in channels)

    def forward(self, maps):
        z = []
        for i, conv in enumerate(self.m):
            y = conv(maps[i])
            b, _, ny, nx = y.shape
            y = y.view(b, self.no, ny, nx).permute(0, 2, 3, 1).contiguous()
            if not self.training:
                if self.grid[i].shape[1:3] != y.shape[1:3]:
                    self.grid[i] = self._make_grid(nx, ny)
                p = y.sigmoid()
                xy = (p[..., 0:2] * 2.0 - 0.5 + self.grid[i]) * self.strides[i]
                wh = (p[..., 2:4] * 2) ** 2 * self.strides[i]
                y = torch.cat((xy, wh, p[..., 4:]), -1).view(b, -1, self.no)
            z.append(y)
        return z if self.training else torch.cat(z, 1)

    @staticmethod
    def _make_grid(nx=20, ny=20):
        yv, xv = torch.meshgrid(torch.arange(ny), torch.arange(nx), indexing="ij")
        return torch.stack((xv, yv), 2).view((1, ny, nx, 2)).float()


class TinyYolo(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 8, 1), nn.SiLU())
        self.down = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.SiLU())
        self.detect = Detect()

    def forward(self, x):
        small = self.stem(x)
        return self.detect([small, self.down(small)])


def tiny_yolo(weights=None):
    model = TinyYolo()
    if weights is not None:
        model.load_state_dict(torch.load(weights, map_location="cpu"))
    return model.eval()
