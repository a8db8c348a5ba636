import math

import torch
from torch import nn


class CosineSchedule:
    def __init__(self, steps=100, offset=0.008):
        t = torch.linspace(0, 1, steps + 1)
        f = torch.cos((t + offset) / (1 + offset) * math.pi / 2) ** 2
        self.alpha_bar = (f / f[0]).clamp(min=1e-5)
        self.steps = steps

    def add_noise(self, x0, noise, t):
        a = self.alpha_bar[t].unsqueeze(-1)
        return a.sqrt() * x0 + (1 - a).sqrt() * noise


class DDPM(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.schedule = CosineSchedule()
        self.net = nn.Sequential(nn.Linear(dim, 64), nn.SiLU(), nn.Linear(64, dim))

    def forward(self, x0):
        t = torch.randint(0, self.schedule.steps, (x0.shape[0],), device=x0.device)
        noise = torch.randn_like(x0)
        return (self.net(self.schedule.add_noise(x0, noise, t)) - noise).square().mean()
