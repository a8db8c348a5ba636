from functools import lru_cache

import torch


@lru_cache(maxsize=16)
def grid_anchors(height, width, stride):
    """Centres of the cells in pixels, (height * width, 2)."""
    xs = (torch.arange(width) + 0.5) * stride
    ys = (torch.arange(height) + 0.5) * stride
    grid = torch.meshgrid(ys, xs, indexing="ij")
    return torch.stack(grid[::-1], dim=-1).reshape(-1, 2)
