from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class RunningStats:
    size: int
    count: int = 0
    mean: torch.Tensor = field(init=False)
    var: torch.Tensor = field(init=False)

    def __post_init__(self):
        self.mean = torch.zeros(self.size)
        self.var = torch.ones(self.size)

    def normalise(self, obs):
        return (obs - self.mean) / (self.var + 1e-8).sqrt()


class Policy(nn.Module):
    def __init__(self, observations=6, actions=2):
        super().__init__()
        self.stats = RunningStats(observations)
        self.body = nn.Sequential(nn.Linear(observations, 64), nn.Tanh(), nn.Linear(64, actions))
        self.log_std = nn.Parameter(torch.zeros(actions))

    def forward(self, obs):
        mean = self.body(self.stats.normalise(obs).clamp(-10, 10))
        return mean, self.log_std.exp().expand_as(mean)
