import torch
import torch.nn.functional as F
from torch import nn


class VectorQuantizer(nn.Module):
    def __init__(self, entries=32, dim=16, decay=0.99):
        super().__init__()
        self.decay = decay
        self.encode = nn.Linear(dim, dim)
        self.register_buffer("codebook", torch.randn(entries, dim))
        self.usage = torch.zeros(entries)

    def forward(self, x):
        z = self.encode(x)
        distance = torch.cdist(z, self.codebook)
        code = distance.argmin(dim=1)
        if self.training:
            with torch.no_grad():
                self.usage.mul_(self.decay)
                self.usage.index_add_(0, code, torch.ones_like(z[:, 0]))
        quantized = self.codebook[code]
        commitment = F.mse_loss(z, quantized)
        return z + (quantized - z).detach() + commitment
