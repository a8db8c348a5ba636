import torch.nn.functional as F
from torch import nn


class AutoEncoder(nn.Module):
    def __init__(self, dim=18, code=4, momentum=0.98):
        super().__init__()
        self.momentum = momentum
        self.encoder = nn.Linear(dim, code)
        self.decoder = nn.Linear(code, dim)
        self.average_loss = 0.0

    def forward(self, x):
        loss = F.mse_loss(self.decoder(self.encoder(x).relu()), x)
        self.average_loss = self.momentum * self.average_loss + (1 - self.momentum) * loss
        return loss
