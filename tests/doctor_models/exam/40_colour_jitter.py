import torch
from torch import nn


class Augment(nn.Module):
    """RGB to YIQ, then a learned gain per channel, and back."""

    def __init__(self):
        super().__init__()
        self.to_yiq = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
        self.gain = nn.Parameter(torch.ones(3))

    def forward(self, images):
        matrix = self.to_yiq.to(images.device, images.dtype)
        yiq = torch.einsum("ij,bjhw->bihw", matrix, images)
        yiq = yiq * self.gain.view(3, 1, 1)
        return torch.einsum("ij,bjhw->bihw", torch.linalg.inv_ex(matrix).inverse, yiq)
