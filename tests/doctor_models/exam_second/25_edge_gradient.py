import torch
import torch.nn.functional as F
from torch import nn


class BlurredGradient(torch.autograd.Function):
    """Identity forward; the gradient is smoothed on the way back."""

    @staticmethod
    def forward(ctx, x, sigma):
        ctx.sigma = sigma
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        taps = torch.arange(-2, 3, dtype=grad.dtype)
        line = torch.exp(-(taps**2) / (2 * ctx.sigma**2))
        kernel = torch.outer(line, line)
        kernel = (kernel / kernel.sum()).expand(grad.size(1), 1, 5, 5)
        return F.conv2d(grad, kernel, padding=2, groups=grad.size(1)), None


class SmoothSegmenter(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.encode = nn.Conv2d(3, 8, 3, padding=1)
        self.classify = nn.Conv2d(8, classes, 1)

    def forward(self, x):
        features = torch.relu(self.encode(x))
        return self.classify(BlurredGradient.apply(features, 1.0))
