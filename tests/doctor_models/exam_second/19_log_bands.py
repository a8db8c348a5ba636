import numpy as np
import torch
from torch import nn


def frequencies(bands, low=1.0, high=64.0):
    return np.geomspace(low, high, bands) * np.pi


class FourierFeatures(nn.Module):
    """Coordinates to sines and cosines on logarithmic bands."""

    def __init__(self, bands=6):
        super().__init__()
        self.bands = bands

    def forward(self, coords):
        freq = torch.from_numpy(frequencies(self.bands)).to(coords.device)
        angle = (coords.unsqueeze(-1) * freq.to(coords.dtype)).flatten(-2)
        return torch.cat([coords, angle.sin(), angle.cos()], dim=-1)


class TinyNeRF(nn.Module):
    def __init__(self, bands=6, width=32):
        super().__init__()
        self.encode = FourierFeatures(bands)
        self.mlp = nn.Sequential(
            nn.Linear(3 + 6 * bands, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
        )

    def forward(self, points):
        out = self.mlp(self.encode(points))
        return torch.cat([out[..., :3].sigmoid(), out[..., 3:].relu()], dim=-1)
