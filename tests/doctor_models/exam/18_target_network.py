import copy

import torch
from torch import nn


class DoubleDQN(nn.Module):
    def __init__(self, observations=4, actions=3, gamma=0.99):
        super().__init__()
        self.gamma = gamma
        self.online = nn.Sequential(nn.Linear(observations, 32), nn.ReLU(), nn.Linear(32, actions))
        # a list, so that the optimizer does not train it
        self._target = [copy.deepcopy(self.online)]

    @property
    def target(self):
        return self._target[0]

    def forward(self, obs):
        q = self.online(obs)
        with torch.no_grad():
            best = q.argmax(dim=1, keepdim=True)
            backup = self.gamma * self.target(obs).gather(1, best)
        return (q.gather(1, best) - backup).square().mean()
