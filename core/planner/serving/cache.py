"""The cache of transformers in which attention layers write in place, into room for the final length. In the planner's
process.

transformers' `DynamicCache` copies everything it holds for each new token; serving engines, and its `StaticCache`, do
not. So its layers are kept (their kinds, windows, lengths and states are the model's own), and those of attention get
another `update`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput
from devexplorer.core.planner.serving.layout import LayerCache

Heads = tuple[tuple[int, int], ...]
"""Of keys and of values: how many, and their width."""


class PlacedLayer:
    """Room for the keys and values of one layer; takes over the `update` of a layer of transformers."""

    def __init__(self, layer: Any, cache: PlacedCache) -> None:
        self._layer, self._cache = layer, cache
        self.window: int | None = layer.sliding_window if layer.is_sliding else None
        self.seen = 0
        """Tokens before the next one."""
        self.room: tuple[Tensor, ...] = ()
        """For keys and for values; empty where another layer has them, or before the first token."""
        layer.update, layer.get_seq_length = self.update, lambda: self.seen

    @property
    def heads(self) -> Heads:
        """Heads of keys and of values, and the width of each."""
        return tuple((room.shape[1], room.shape[3]) for room in self.room)

    def make_room(self, batch: int, heads: Heads, dtype: torch.dtype, device: str | torch.device) -> None:
        """For everything that it will hold."""
        tokens = LayerCache((1,), self.window).tokens(self._cache.length, self._cache.block)
        self.room = tuple(
            torch.empty((batch, count, tokens, width), dtype=dtype, device=device) for count, width in heads
        )
        self._layer.is_initialized = True

    def jump(self, tokens: int) -> None:
        """Go on as if there were so many tokens in it."""
        self.seen = tokens
        if hasattr(self._layer, "cumulative_length"):
            self._layer.cumulative_length = tokens

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write them, and return everything that is attended to."""
        if not self.room:
            heads = tuple((new.shape[1], new.shape[3]) for new in (keys, values))
            self.make_room(keys.shape[0], heads, self._cache.dtype or keys.dtype, keys.device)
        answer = tuple(self._with(room, new) for room, new in zip(self.room, (keys, values), strict=True))
        self.jump(self.seen + keys.shape[-2])
        return answer[0], answer[1]

    def _with(self, room: Tensor, new: Tensor) -> Tensor:
        count = new.shape[2]
        written = min(count, room.shape[2])
        begin = min(self.seen, room.shape[2] - written)
        room[:, :, begin : begin + written].copy_(new[:, :, count - written :])
        if not self.seen:
            return new
        before = self.seen if self.window is None else min(self.seen, self.window - 1)
        if self.window is not None and count > 1:  # the window of the first of them and that of the last
            return torch.cat([room[:, :, :before].to(new.dtype), new], dim=2)
        held = room[:, :, : before + count]
        return held if self._cache.direct else held.to(new.dtype)


class PlacedCache:
    """A cache for one model. `cache` is what its forward gets."""

    def __init__(
        self,
        model: nn.Module,
        length: int,
        dtype: torch.dtype | None = None,
        *,
        block: int | None = None,
        direct: bool = True,
    ) -> None:
        """`length`: tokens at the end. `direct`: attention reads the cache's dtype; otherwise what it reads is cast
        before. Raises `BadInput` for a kind of layer that is not planned for."""
        from transformers.cache_utils import DummyLayer, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

        self.length, self.dtype, self.block, self.direct = length, dtype, block, direct
        self.cache = DynamicCache(config=model.config)  # type: ignore[arg-type]
        grow = (DynamicLayer.update, DynamicSlidingWindowLayer.update)
        self._layers: list[tuple[Any, PlacedLayer | None]] = []
        self._states: dict[int, list[Tensor]] = {}
        """Room for the states of layers that do not run, by their number."""
        for layer in self.cache.layers:
            update = getattr(type(layer), "update", None)
            placed = update in grow and not hasattr(layer, "update_indexer")
            if not placed and not isinstance(layer, DummyLayer) and update is not None:
                raise BadInput(f"a cache with a {type(layer).__name__} is not planned for")
            self._layers.append((layer, PlacedLayer(layer, self) if placed else None))

    def jump(self, tokens: int) -> None:
        """Go on as if there were so many tokens in it."""
        for _, placed in self._layers:
            if placed is not None:
                placed.jump(tokens)

    def heads(self) -> tuple[Heads, ...]:
        """Of each layer, once tokens went through; empty for one that keeps none."""
        return tuple(() if placed is None else placed.heads for _, placed in self._layers)

    def make_room(self, batch: int, heads: Sequence[Heads], dtype: torch.dtype, device: str) -> None:
        """For the whole request, before its first token, as a serving engine does. States get theirs from the layers
        that run; `make_states` is for the others."""
        for (_, placed), some in zip(self._layers, heads, strict=True):
            if placed is not None and some:
                placed.make_room(batch, some, self.dtype or dtype, device)

    def make_states(self, batch: int, number: int, layer: LayerCache, device: str) -> None:
        """Room for the states of a layer that does not run."""
        self._states[number] = [
            torch.empty(batch * nbytes, dtype=torch.uint8, device=device) for nbytes in layer.state_bytes
        ]

    def layers(self, batch: int) -> tuple[LayerCache, ...]:
        """What each layer keeps of one sequence, once a batch of so many went through."""
        answer = []
        for layer, placed in self._layers:
            heads, window = ((), None) if placed is None else (placed.heads, placed.window)
            states = tuple(state.nbytes // batch for state in _states(layer))
            answer.append(LayerCache(tuple(count * width for count, width in heads), window if heads else None, states))
        return tuple(answer)

    def tensors(self) -> Iterator[Tensor]:
        """Layer by layer, as `LayerCache.sizes` counts them."""
        for number, (layer, placed) in enumerate(self._layers):
            yield from () if placed is None else placed.room
            yield from _states(layer) or self._states.get(number, [])


def _states(layer: Any) -> list[Tensor]:
    """What does not grow with the sequence."""
    held = (getattr(layer, name, None) or {} for name in ("conv_states", "recurrent_states"))
    return [state for states in held for state in states.values() if isinstance(state, Tensor)]
