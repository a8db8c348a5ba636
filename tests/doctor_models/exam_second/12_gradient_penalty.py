import torch
from torch import nn


class Critic(nn.Module):
    def __init__(self, channels=3, width=8):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
        )
        self.score = nn.Linear(width, 1)

    def forward(self, x):
        return self.score(self.conv(x).mean(dim=(2, 3)))


class WGANGP(nn.Module):
    def __init__(self, lambda_gp=10.0):
        super().__init__()
        self.critic = Critic()
        self.lambda_gp = lambda_gp

    def gradient_penalty(self, real, fake):
        alpha = torch.rand(real.size(0), 1, 1, 1)
        mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        score = self.critic(mixed)
        (gradient,) = torch.autograd.grad(
            outputs=score,
            inputs=mixed,
            grad_outputs=torch.ones_like(score),
            create_graph=True,
        )
        return ((gradient.flatten(1).norm(2, dim=1) - 1) ** 2).mean()

    def forward(self, real):
        fake = torch.rand_like(real)
        loss = self.critic(fake).mean() - self.critic(real).mean()
        if self.training:
            loss = loss + self.lambda_gp * self.gradient_penalty(real, fake)
        return loss
