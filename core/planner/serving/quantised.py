"""Layers whose weights are stored in fewer bits, in place of those of a model without values. In the planner's
process.

A product reads them as they are stored, as Marlin and similar kernels do, and computes in the dtype of the activations;
or in 8 bits, where the method quantises activations too and the card multiplies such numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from devexplorer.core.planner.serving.kernels import packed_product
from devexplorer.core.planner.serving.quantisation import ACTIVATIONS, LayerPart, Scheme

EXPERTS = ("gate_up_proj", "up_proj", "down_proj")
"""Weights of all experts of a layer, as transformers holds them together."""


class PackedWeights(nn.Module):
    """The tensors of a linear layer; those of several experts have them as their first dimension."""

    def __init__(
        self,
        parts: tuple[LayerPart, ...],
        outputs: int,
        dtype: torch.dtype,
        activations: str,
        bias: Any,
        experts: int = 0,
    ) -> None:
        super().__init__()
        self.out_features = outputs
        self._activations = getattr(torch, activations) if activations else None
        self.eight_bit = False
        leading = (experts,) if experts else ()
        for part in parts:
            kind = dtype if part.dtype == ACTIVATIONS else getattr(torch, part.dtype)
            made = torch.empty((*leading, *part.shape), dtype=kind, device="meta")
            self.register_parameter(part.name, nn.Parameter(made, requires_grad=False))
        self.register_parameter("bias", bias)

    def forward(self, x: Tensor, count: int | None = None) -> Tensor:
        """The product; `count`: of the first so many experts."""
        weights = [weight if count is None else weight[:count] for weight in self.parameters(recurse=False)]
        given = x.to(self._activations) if self.eight_bit and self._activations is not None else x
        if count is None:
            rows = packed_product(given.reshape(-1, x.shape[-1]), weights, self.out_features, x.dtype)
            return rows.view(*x.shape[:-1], self.out_features)
        return packed_product(given, weights, self.out_features, x.dtype)


def quantise(model: nn.Module, scheme: Scheme, dtype: torch.dtype) -> int:
    """Replace the linear layers that the scheme covers, in a model on `meta`. Returns how many were replaced.

    What is tied to an embedding stays, as the methods leave it.
    """
    tied = _embedded(model)
    replaced = 0
    for path, module in list(model.named_modules()):
        if hasattr(module, "num_experts") and scheme.covers(path):
            replaced += _quantise_experts(module, scheme, dtype)
        for name, child in list(module.named_children()):
            whole = f"{path}.{name}" if path else name
            if type(child) is not nn.Linear or id(child.weight) in tied or not scheme.covers(whole):
                continue
            parts = scheme.parts(child.out_features, child.in_features)
            packed = PackedWeights(parts, child.out_features, dtype, scheme.activations, child.bias)
            setattr(module, name, packed)
            replaced += 1
    return replaced


def _quantise_experts(module: Any, scheme: Scheme, dtype: torch.dtype) -> int:
    """As many layers as there are experts, gate and up apart, each stored as a linear layer is."""
    replaced = 0
    for name in EXPERTS:
        weight = getattr(module, name, None)
        if not isinstance(weight, Tensor) or weight.dim() != 3:
            continue
        experts, outputs, inputs = weight.shape
        if getattr(module, "is_transposed", False):
            outputs, inputs = inputs, outputs
        bias = getattr(module, f"{name}_bias", None)
        halves = 2 if name == "gate_up_proj" else 1
        parts = tuple(
            part._replace(name=f"{part.name}_{half}")
            for half in range(halves)
            for part in scheme.parts(outputs // halves, inputs)
        )
        delattr(module, name)
        packed = PackedWeights(parts, outputs, dtype, scheme.activations, bias, experts)
        setattr(module, f"{name}_packed", packed)
        replaced += experts * halves
    return replaced


def _embedded(model: nn.Module) -> set[int]:
    return {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}


def compute_in_eight_bits(model: nn.Module, on: bool) -> None:
    """Whether the card multiplies numbers of 8 bits."""
    for module in model.modules():
        if isinstance(module, PackedWeights):
            module.eight_bit = on
