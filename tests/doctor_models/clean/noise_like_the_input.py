# A variational autoencoder with noise in the image of its mean.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(12, 8)
        self.decode = nn.Linear(4, 12)

    def forward(self, x):
        mean, log_variance = self.encode(x).chunk(2, dim=-1)
        z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        kept = torch.rand(z.shape[0], 1, device=z.device) > 0.1
        return self.decode(z * kept)
