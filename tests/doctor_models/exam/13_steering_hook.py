import torch
from torch import nn


def steer(direction, strength):
    def hook(module, args, output):
        return output + strength * direction

    return hook


class SteeredMLP(nn.Module):
    def __init__(self, dim=16, layers=3, layer=1, strength=4.0):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(dim, dim), nn.ReLU()) for _ in range(layers))
        direction = torch.randn(dim)
        direction /= direction.norm()
        self.blocks[layer].register_forward_hook(steer(direction, strength))

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x)
        return x
