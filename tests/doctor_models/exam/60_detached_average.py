import torch
import torch.nn.functional as F
from torch import nn


class TrackedAutoEncoder(nn.Module):
    def __init__(self, dim=18, code=4, momentum=0.98):
        super().__init__()
        self.momentum = momentum
        self.encoder = nn.Linear(dim, code)
        self.decoder = nn.Linear(code, dim)
        self.register_buffer("average_loss", torch.zeros(()))

    def forward(self, x):
        loss = F.mse_loss(self.decoder(self.encoder(x).relu()), x)
        self.average_loss.mul_(self.momentum).add_(loss.detach(), alpha=1 - self.momentum)
        return loss
