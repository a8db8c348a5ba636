# Angles in float32, their cosines in the model's dtype.
# input: 2x6x8
# dtype: bfloat16
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.register_buffer("rates", 1 / 100 ** (torch.arange(0, 8, 2) / 8), persistent=False)

    def forward(self, x):
        angles = torch.arange(x.shape[1], device=x.device).float()[:, None] * self.rates.float()
        cos = angles.cos().repeat(1, 2).to(x.dtype)
        return self.fc(x) * cos
