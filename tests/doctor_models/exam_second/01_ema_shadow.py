import torch
from torch import nn


class EMA:
    """Keeps an exponential moving average of the weights of a model."""

    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.model = model
        self.shadow = {}
        self.register()

    def register(self):
        for name, param in self.model.named_parameters():
            if param.requires_grad:
                self.shadow[name] = param.data.clone()

    @torch.no_grad()
    def update(self):
        for name, param in self.model.named_parameters():
            if name in self.shadow:
                new = (1.0 - self.decay) * param.data + self.decay * self.shadow[name]
                self.shadow[name] = new.clone()


class Denoiser(nn.Module):
    def __init__(self, dim=12, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, dim))
        self.ema = EMA(self.net)

    def forward(self, x):
        out = self.net(x)
        if self.training:
            self.ema.update()
        return out
