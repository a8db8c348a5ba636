import torch
from torch import nn
from torch.distributions import MultivariateNormal


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        log_scale, shift = self.net(a).chunk(2, dim=1)
        b = b * log_scale.exp() + shift
        return torch.cat([b, a] if self.flip else [a, b], dim=1), log_scale.sum(dim=1)


class RealNVP(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(flip=i % 2 == 1) for i in range(layers))
        self.prior = MultivariateNormal(torch.zeros(2), torch.eye(2))

    def forward(self, x):
        log_det = 0.0
        for layer in self.layers:
            x, delta = layer(x)
            log_det = log_det + delta
        return -(self.prior.log_prob(x) + log_det).mean()
