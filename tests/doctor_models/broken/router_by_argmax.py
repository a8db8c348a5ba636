# Sees: the router is as good as random after a day of training.
# input: 4x12
# train
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(12, 3)
        self.experts = nn.ModuleList(nn.Linear(12, 12) for _ in range(3))

    def forward(self, x):
        chosen = self.router(x).argmax(dim=-1)  # defect: cut-from-autograd
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        return outputs[torch.arange(x.shape[0], device=x.device), chosen]
