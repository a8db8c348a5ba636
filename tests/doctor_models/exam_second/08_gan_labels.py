import torch
from torch import nn


class GANLoss(nn.Module):
    def __init__(self, real=0.9, fake=0.0):
        super().__init__()
        self.real = real
        self.fake = fake
        self.loss = nn.BCEWithLogitsLoss()

    def forward(self, prediction, is_real):
        value = self.real if is_real else self.fake
        target = torch.full(prediction.size(), value)
        return self.loss(prediction, target)


class VanillaGAN(nn.Module):
    def __init__(self, latent=8, data=20):
        super().__init__()
        self.latent = latent
        self.generator = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, data), nn.Tanh())
        self.discriminator = nn.Sequential(nn.Linear(data, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
        self.criterion = GANLoss()

    def forward(self, real):
        z = torch.randn(real.size(0), self.latent, device=real.device)
        fake = self.generator(z)
        d_loss = self.criterion(self.discriminator(real), True) + self.criterion(
            self.discriminator(fake.detach()), False
        )
        g_loss = self.criterion(self.discriminator(fake), True)
        return d_loss + g_loss
