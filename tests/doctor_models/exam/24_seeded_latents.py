import torch
from torch import nn


class SeededGenerator(nn.Module):
    def __init__(self, labels=8, latent=16, seed=1234):
        super().__init__()
        self.latent = latent
        self.rng = torch.Generator().manual_seed(seed)
        self.net = nn.Sequential(nn.Linear(labels + latent, 64), nn.LeakyReLU(0.2), nn.Linear(64, 28 * 28), nn.Tanh())

    def forward(self, labels):
        z = torch.randn(labels.size(0), self.latent, generator=self.rng, device=labels.device)
        return self.net(torch.cat([labels, z], dim=1)).view(-1, 1, 28, 28)
