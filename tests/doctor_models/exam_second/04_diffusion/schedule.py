import math

import torch


def cosine_betas(steps, s=0.008):
    betas = []
    for i in range(steps):
        now = math.cos((i / steps + s) / (1 + s) * math.pi / 2) ** 2
        then = math.cos(((i + 1) / steps + s) / (1 + s) * math.pi / 2) ** 2
        betas.append(min(1 - then / now, 0.999))
    return torch.tensor(betas)


def extract(values, t, shape):
    """The values of these time steps, in a shape that broadcasts over the images."""
    out = values.gather(0, t)
    return out.view(-1, *([1] * (len(shape) - 1)))


class NoiseSchedule:
    def __init__(self, steps=50):
        self.steps = steps
        betas = cosine_betas(steps)
        alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
        self.sqrt_alphas_cumprod = alphas_cumprod.sqrt()
        self.sqrt_one_minus = (1.0 - alphas_cumprod).sqrt()

    def q_sample(self, x, t, noise):
        a = extract(self.sqrt_alphas_cumprod, t, x.shape)
        b = extract(self.sqrt_one_minus, t, x.shape)
        return a * x + b * noise
