# A name that is registered before there is a tensor for it.
# input: 2x6x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 12)
        self.register_buffer("mask", None, persistent=False)
        self.register_parameter("bias", None)

    def forward(self, x):
        if self.mask is None or self.mask.shape[0] < x.shape[1]:
            self.mask = torch.ones(x.shape[1], x.shape[1], device=x.device).tril()
        return self.mask[: x.shape[1], : x.shape[1]] @ self.fc(x)
