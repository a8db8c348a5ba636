"""One large picture in inference: two of its activations do not fit, and they are no attention matrices."""

import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 2, 1)).cuda().eval()
with torch.inference_mode():
    model(torch.zeros(1, 3, 2048, 2048, device="cuda"))
