"""One card's share of a model that is split in every layer, and what the cards exchange. In the planner's process.

How each layer is split is transformers' own plan for the model (`base_model_tp_plan` of its configuration, `_tp_plan`
of its class; the styles are those of src/transformers/distributed/tensor_parallel.py): products by columns, then by
rows with an all-reduce behind, after attention and after the MLP. What the plan leaves out is on every card. Keys and
values of heads that are fewer than the cards are on several of them, as vLLM does it (`num_kv_head_replicas` of
`QKVParallelLinear`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from devexplorer.core.allreduce.kind import ring_seconds
from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import Profile

COLUMNS = ("colwise", "colwise_gather_output", "colwise_rep", "packed_colwise")
ROWS = ("rowwise", "rowwise_split_input", "rowwise_rep", "packed_rowwise")
WHOLE = ("replicated_with_grad_allreduce", "mla_kv_a_proj", "replicate", "sequence_parallel", "local_params")
"""Styles whose parameters are on every card."""
GATHERED = ("colwise_gather_output", "colwise_rep", "embedding_colwise")
SUMMED = (*ROWS, "moe_tp_experts", "all_reduce", "embedding_rowwise")
KEYS_AND_VALUES = ("k_proj", "v_proj")


class Exchange(NamedTuple):
    """What the cards exchange once."""

    kind: str
    """`all-reduce` or `all-gather`."""
    nbytes: int
    """Of the whole tensor."""

    def seconds(self, profile: Profile, ways: int) -> float:
        """Simulated, in a ring. A gather is the second half of an all-reduce."""
        ring = ring_seconds([(f"vgpu:{index}", profile) for index in range(ways)], self.nbytes)
        return ring if self.kind == "all-reduce" else ring / 2


@dataclass(frozen=True)
class TensorParallelSplit:
    """How a model was split; `watch` lets a copy of it note what would be exchanged."""

    ways: int = 1
    styles: tuple[tuple[str, str], ...] = ()
    """Path of a module, and its style."""

    def watch(self, model: nn.Module, exchanges: list[Exchange]) -> None:
        """Make outputs as large as they are after the exchange, and note each exchange."""
        modules = dict(model.named_modules())
        for path, style in self.styles:
            module = modules.get(path)
            if module is None or isinstance(module, nn.ParameterList):
                continue
            if style in ("rowwise_split_input", "rowwise_rep"):
                module.register_forward_pre_hook(_own_columns)
            if style in GATHERED:
                module.register_forward_hook(_gather(self.ways, exchanges))
            elif style in SUMMED:
                module.register_forward_hook(_note(exchanges))


def _own_columns(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return inputs[0][..., : module.in_features], *inputs[1:]


def _gather(ways: int, exchanges: list[Exchange]) -> Callable[..., Tensor]:
    def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        whole = output.new_empty((*output.shape[:-1], ways * output.shape[-1]))
        exchanges.append(Exchange("all-gather", whole.nbytes))
        return whole

    return hook


def _note(exchanges: list[Exchange]) -> Callable[..., None]:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
        exchanges.append(Exchange("all-reduce", output.nbytes))

    return hook


def split(model: nn.Module, title: str, ways: int) -> TensorParallelSplit:
    """Shrink a model (without values) to the share of one card. Raises `BadInput` where it cannot be split so."""
    if ways == 1:
        return TensorParallelSplit()
    plan: dict[str, str] = dict(getattr(model, "_tp_plan", None) or {})
    if not any(style in (*COLUMNS, *ROWS, "moe_tp_experts") for style in plan.values()):
        raise BadInput(f"transformers has no plan for tensor parallelism of '{title}'; plan for single cards")
    config: Any = model.config.get_text_config(decoder=True)  # type: ignore[operator, union-attr]
    heads = getattr(config, "num_attention_heads", None)
    if isinstance(heads, int) and heads % ways:
        raise BadInput(f"the {heads} attention heads of '{title}' cannot be split over {ways} cards evenly")
    styles: list[tuple[str, str]] = []
    shrink = _Shrink()
    for path, module in model.named_modules():
        style = plan.get(_pattern(path))
        if style is not None:
            shrink.module(path, module, style, _parts(config, path, ways, title))
            styles.append((path, style))
        for name, parameter in module.named_parameters(recurse=False):
            own = plan.get(_pattern(f"{path}.{name}"))
            if own is not None:
                shrink.parameter(module, name, parameter, _dimension(own, parameter), ways, f"{path}.{name}")
    _fewer_heads(model, config, ways)
    return TensorParallelSplit(ways, tuple(styles))


def _pattern(path: str) -> str:
    return re.sub(r"\.\d+(?=\.|$)", ".*", path)


def _parts(config: Any, path: str, ways: int, title: str) -> int:
    """Parts of a product: as many as cards, or as heads of keys and values, where those are fewer."""
    groups = getattr(config, "num_key_value_heads", None)
    if path.rpartition(".")[2] not in KEYS_AND_VALUES or not isinstance(groups, int) or groups % ways == 0:
        return ways
    if ways % groups:
        raise BadInput(f"the {groups} heads of keys and values of '{title}' cannot be split over {ways} cards evenly")
    return groups


def _fewer_heads(model: nn.Module, config: Any, ways: int) -> None:
    """Queries that share a head of keys, where those heads are on several cards."""
    groups, heads = getattr(config, "num_key_value_heads", None), getattr(config, "num_attention_heads", None)
    if isinstance(groups, int) and isinstance(heads, int) and groups < ways:
        for module in model.modules():
            if isinstance(getattr(module, "num_key_value_groups", None), int):
                module.num_key_value_groups = heads // ways  # type: ignore[assignment]


class _Shrink:
    """Makes parameters smaller; what is tied stays tied."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Tensor, nn.Parameter]] = {}
        """By the `id` of a parameter: itself, so that the id stays its own, and what replaces it."""

    def module(self, path: str, module: Any, style: str, ways: int) -> None:
        """What belongs to this module."""
        if style in WHOLE or style in ("moe_tp_experts", "all_reduce", "moe_identity_expert"):
            return
        if style not in (*COLUMNS, *ROWS, "embedding_rowwise", "embedding_colwise"):
            raise BadInput(f"the style '{style}' of tensor parallelism is not planned for (of '{path}')")
        for name, parameter in list(module.named_parameters(recurse=False)):
            self.parameter(module, name, parameter, _dimension(style, parameter), ways, f"{path}.{name}")
        for name, splits in (("out_features", COLUMNS), ("in_features", ROWS)):
            if hasattr(module, name) and style in splits:
                setattr(module, name, getattr(module, name) // ways)

    def parameter(
        self, module: nn.Module, name: str, parameter: nn.Parameter, dimension: int | None, ways: int, path: str
    ) -> None:
        """One parameter, along one dimension; None: it is on every card."""
        if dimension is None or any(parameter is made for _, made in self._made.values()):
            return
        if id(parameter) not in self._made:
            shape = list(parameter.shape)
            if shape[dimension] % ways:
                size = shape[dimension]
                raise BadInput(f"{size} rows or columns of '{path}' cannot be split over {ways} cards evenly")
            shape[dimension] //= ways
            smaller = torch.empty(shape, dtype=parameter.dtype, device="meta")
            self._made[id(parameter)] = parameter, nn.Parameter(smaller, requires_grad=False)
        setattr(module, name, self._made[id(parameter)][1])


def _dimension(style: str, parameter: Tensor) -> int | None:
    """Which dimension of a parameter is split; None: it is on every card."""
    if style in COLUMNS:
        return max(parameter.dim() - 2, 0)
    if style in ROWS:
        return None if parameter.dim() == 1 else parameter.dim() - 1
    return {"embedding_rowwise": 0, "embedding_colwise": 1}.get(style)
