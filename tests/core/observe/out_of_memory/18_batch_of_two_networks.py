"""A GAN whose batch is too large: what its generator has saved is from before the step of the discriminator, and is
needed."""

import torch
from torch import nn

generator = nn.Sequential(nn.Linear(16, 1024), *(nn.Tanh() for _ in range(10))).to("cuda")
discriminator = nn.Sequential(nn.Linear(1024, 1024), *(nn.Tanh() for _ in range(6)), nn.Linear(1024, 1)).to("cuda")
of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
of_discriminator = torch.optim.SGD(discriminator.parameters(), lr=0.1)


def step(noise):
    made = generator(noise)
    of_discriminator.zero_grad()
    discriminator(made.detach()).mean().backward()
    of_discriminator.step()
    of_generator.zero_grad()
    (-discriminator(made)).mean().backward()
    of_generator.step()


step(torch.zeros(8192, 16, device="cuda"))
step(torch.zeros(10_240, 16, device="cuda"))
