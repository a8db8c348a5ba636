# Sees: a spatial transformer; grid_sample wants the grid where the image is.
# input: 2x3x8x8
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Linear(3 * 8 * 8, 2)

    def forward(self, images):
        steps = torch.linspace(-1, 1, images.shape[-1])  # defect: default-device
        rows, columns = torch.meshgrid(steps, steps, indexing="ij")
        grid = torch.stack((columns, rows), dim=-1).unsqueeze(0) + self.shift(images.flatten(1)).view(-1, 1, 1, 2)
        return nn.functional.grid_sample(images, grid, align_corners=True)
