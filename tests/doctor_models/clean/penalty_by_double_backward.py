# A gradient penalty: autograd.grad with create_graph in forward.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        x = x.detach().requires_grad_()
        score = self.critic(x)
        (gradient,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        return score.mean() + (gradient.norm(dim=-1) - 1).square().mean()
