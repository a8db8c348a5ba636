# Distributions that are made in forward from what is on the device.
# input: 4x12
# train
import torch
from torch import nn
from torch.distributions import Categorical, Independent, Normal


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 4)
        self.register_buffer("loc", torch.zeros(4))

    def forward(self, x):
        y = self.fc(x)
        prior = Independent(Normal(self.loc, torch.ones_like(self.loc)), 1)
        return Categorical(logits=y).entropy().mean() - prior.log_prob(y).mean()
