# A distribution that only the training script's loss uses: forward has nothing to do with it.
# input: 4x12
import torch
from torch import nn
from torch.distributions import Normal


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.prior = Normal(torch.zeros(12), torch.ones(12))

    def forward(self, x):
        return self.fc(x)

    def loss(self, code):
        return -self.prior.log_prob(code.cpu()).mean()
