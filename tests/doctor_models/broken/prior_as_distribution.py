# Sees: a prior made once in __init__; its mean and deviation are tensors of the CPU inside a plain object.
# input: 4x12
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(12, 8)
        self.prior = Normal(torch.zeros(4), torch.ones(4))  # defect: unregistered-tensor

    def forward(self, x):
        mean, log_deviation = self.encode(x).chunk(2, dim=-1)
        return kl_divergence(Normal(mean, log_deviation.exp()), self.prior).mean()
