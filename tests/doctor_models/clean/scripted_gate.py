"""A scripted function and a scripted module: they are examined as they are written."""
# input: 4x12
# train

import torch
from torch import nn


@torch.jit.script
def gate(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


class Block(torch.jit.ScriptModule):
    def __init__(self, size: int):
        super().__init__()
        self.layer = nn.Linear(size, size)

    @torch.jit.script_method
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return gate(self.layer(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(12), torch.jit.script(nn.Linear(12, 12)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)
