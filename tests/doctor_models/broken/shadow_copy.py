# Sees: an exponential moving average of the weights, kept as a dict of clones: it stays on the CPU.
# input: 4x12
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 4)
        self.shadow = {  # defect: unregistered-tensor
            name: value.detach().clone() for name, value in self.fc.named_parameters()
        }

    @torch.no_grad()
    def follow(self):
        for name, value in self.fc.named_parameters():
            self.shadow[name].mul_(0.99).add_(value, alpha=0.01)

    def forward(self, x):
        self.follow()
        return self.fc(x)
