"""Lets a model compute the activations of its repeated blocks again in backward instead of keeping them. In the
planner's process."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from devexplorer.core.base import BadInput
from devexplorer.core.split.blocks import is_stack


def checkpoint_blocks(title: str, model: nn.Module) -> None:
    """Put `torch.utils.checkpoint` around each of them. Raises `BadInput` where the model repeats none.

    Models of transformers have their own switch for it; elsewhere blocks are the layers of stacks, the outermost
    ones.
    """
    if getattr(model, "supports_gradient_checkpointing", False):
        if getattr(getattr(model, "config", None), "use_cache", False):
            # transformers does so too, and says it in the log
            model.config.use_cache = False  # type: ignore[union-attr]
        newer: Any = getattr(model, "activation_checkpointing_enable", None)
        older: Any = getattr(model, "gradient_checkpointing_enable", None)
        if newer is not None:
            newer({"use_reentrant": False})
            return
        if older is not None:
            older(gradient_checkpointing_kwargs={"use_reentrant": False})
            return
    blocks = list(repeated(model))
    if not blocks:
        raise BadInput(f"'{title}' repeats no block, so there is nothing to put checkpoints around")
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def repeated(model: nn.Module) -> Iterator[nn.Module]:
    """The layers of the outermost stacks, each once."""
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        module = waiting.pop()
        if not is_stack(module):
            waiting += module.children()
            continue
        for layer in module.children():
            if id(layer) not in seen and any(True for _ in layer.children()):
                seen.add(id(layer))
                yield layer
