import torch
from torch import nn


def coordinates(height, width):
    """On the default device, which the caller sets."""
    y = torch.linspace(-1, 1, height)
    x = torch.linspace(-1, 1, width)
    return torch.stack(torch.meshgrid(y, x, indexing="ij")).unsqueeze(0)


class CoordConv(nn.Module):
    def __init__(self, inp, out):
        super().__init__()
        self.conv = nn.Conv2d(inp + 2, out, 3, padding=1)

    def forward(self, x):
        with torch.device(x.device):
            place = coordinates(x.size(2), x.size(3))
        return self.conv(torch.cat([x, place.expand(x.size(0), -1, -1, -1)], dim=1))


class CoordNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = CoordConv(3, 8)
        self.b = CoordConv(8, 1)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))
