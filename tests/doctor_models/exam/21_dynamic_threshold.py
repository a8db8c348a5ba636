import torch
from torch import nn


class ThresholdedSampler(nn.Module):
    """One denoising step with Imagen's dynamic thresholding."""

    def __init__(self, percentile=0.995):
        super().__init__()
        self.denoise = nn.Conv2d(3, 3, 3, padding=1)
        self.percentile = torch.tensor(percentile)

    def forward(self, noisy):
        x0 = noisy - self.denoise(noisy)
        s = torch.quantile(x0.flatten(1).abs(), self.percentile, dim=1)
        s = s.clamp(min=1.0).view(-1, 1, 1, 1)
        return x0.clamp(-s, s) / s
