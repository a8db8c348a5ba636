import torch
from torch import nn


def download_weights(shapes, seed=0):
    """Stands for torch.load(..., map_location='cpu')."""
    rng = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=rng) * 0.02 for name, shape in shapes.items()}


class LazyPretrained(nn.Module):
    def __init__(self, dim=12, classes=4):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 32))
        self.head = nn.Linear(32, classes)
        self._loaded = False

    def _load(self):
        shapes = {name: value.shape for name, value in self.backbone.state_dict().items()}
        self.backbone.load_state_dict(download_weights(shapes), assign=True)
        self._loaded = True

    def forward(self, x):
        if not self._loaded:
            self._load()
        return self.head(self.backbone(x))
