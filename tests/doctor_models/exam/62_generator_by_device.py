import torch
from torch import nn


class NoisyLatents(nn.Module):
    def __init__(self, labels=8, latent=16, seed=1234):
        super().__init__()
        self.latent = latent
        self.seed = seed
        self.net = nn.Linear(labels + latent, 10)
        self._generators = {}

    def generator(self, device):
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self._generators[device]

    def forward(self, labels):
        rng = self.generator(labels.device)
        z = torch.randn(labels.size(0), self.latent, generator=rng, device=labels.device)
        return self.net(torch.cat([labels, z], dim=1))
