"""Custom layers: without parameters, with them, and the bilinear reduction. Built on the jobs thread."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn


class Centred(nn.Module):
    """Subtracts the mean over everything: shape kept, no parameters, works wherever its input is."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean()


class OwnLinear(nn.Module):
    """`relu(x W + b)` with W of shape (inputs, outputs), both parameters registered by hand."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(inputs, outputs), std=inputs**-0.5))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.weight + self.bias)


class Bilinear(nn.Module):
    """`y_k = Σ_ij W_ijk x_i x_j`: (batch, inputs) → (batch, outputs), W of shape (inputs, inputs, outputs)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(inputs, inputs, outputs), std=1 / inputs))

    def forward(self, x: Tensor) -> Tensor:
        pairs = (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)  # (batch, inputs²)
        return pairs @ self.weight.flatten(0, 1)


def custom_layers() -> nn.Module:
    """Own linear 20 → 32, centred, bilinear reduction 32 → 10."""
    return nn.Sequential(OwnLinear(20, 32), Centred(), Bilinear(32, 10))


class DataLinear(OwnLinear):
    """The pitfall: `.data` gives the values without their history, so no gradient ever reaches these two parameters."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.weight.data + self.bias.data)


def data_pitfall() -> nn.Module:
    """Own linear 20 → 32 that reads its parameters through `.data`, then a layer that does not: only the second one
    learns."""
    return nn.Sequential(DataLinear(20, 32), nn.Linear(32, 10))


class NoisyLinear(nn.Module):
    """The pitfall: its forward draws noise without naming a device. That is on the CPU, wherever the layer and its
    input are."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.randn(x.shape)
        return cast(Tensor, self.linear(x + 0.1 * noise))


def noise_pitfall() -> nn.Module:
    """Noise on the input, 20 → 32, then 32 → 10: works on the CPU, and fails on every other device."""
    return nn.Sequential(NoisyLinear(20, 32), nn.ReLU(), nn.Linear(32, 10))
