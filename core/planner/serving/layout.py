"""How large the key-value cache of a model is, layer by layer, for any batch and length. Pure; no torch; any thread.

A layer of attention keeps the same number of bytes for each token; one with a sliding window keeps at most the window;
one with a state (convolution, recurrence) keeps a fixed amount for each sequence.

Whole: room for the final length from the start, windows as large as the window, as transformers' `StaticCache`
(`StaticSlidingWindowLayer`: `min(sliding_window, max_cache_len)` tokens). Paged: blocks of a number of tokens, the last
one of each sequence partly empty. A window can begin within a block, so it may touch one block more than it fills
(`SlidingWindowSpec.max_memory_usage_bytes` of vLLM's vllm/v1/kv_cache_interface.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from devexplorer.core.planner.serving_records import CacheLayers


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps of one sequence."""

    parts: tuple[int, ...] = ()
    """Elements for each token, of each tensor: heads times width of keys, of values, and of what else grows."""
    window: int | None = None
    """Tokens that are kept at most; None: all."""
    state_bytes: tuple[int, ...] = ()
    """Bytes of each tensor that does not grow."""

    @property
    def kind(self) -> str:
        """`full`, `sliding`, `state`; a layer with both attention and a state is what its attention is."""
        if not self.parts:
            return "state"
        return "full" if self.window is None else "sliding"

    def tokens(self, length: int, block: int | None = None) -> int:
        """Tokens that a sequence of this length has room for."""
        if not self.parts or length <= 0:
            return 0
        if block is None:
            return length if self.window is None else min(length, self.window)
        blocks = -(-length // block)
        if self.window is not None:
            blocks = min(blocks, -(-self.window // block) + 1)
        return blocks * block

    def sizes(self, batch: int, length: int, item_bytes: int, block: int | None = None) -> list[int]:
        """Bytes of each tensor for so many sequences of this length."""
        tokens = self.tokens(length, block)
        return [
            *(batch * tokens * elements * item_bytes for elements in self.parts),
            *(batch * nbytes for nbytes in self.state_bytes),
        ]


@dataclass(frozen=True)
class CacheLayout:
    """What all layers of a model keep."""

    layers: tuple[LayerCache, ...]
    item_bytes: int
    """Of one element of keys and values."""
    block: int | None = None
    """Tokens of a block; None: not paged."""

    def sizes(self, batch: int, length: int) -> list[int]:
        """Bytes of each tensor, layer by layer."""
        return [size for layer in self.layers for size in layer.sizes(batch, length, self.item_bytes, self.block)]

    def bytes(self, batch: int, length: int) -> int:
        """All of it."""
        return sum(self.sizes(batch, length))

    @property
    def bytes_per_token(self) -> int:
        """What one more token of a long sequence takes."""
        return sum(sum(layer.parts) for layer in self.layers if layer.window is None) * self.item_bytes

    def groups(self, batch: int, length: int) -> tuple[CacheLayers, ...]:
        """Layers of one kind together, in the order in which each first occurs."""
        kinds = list(dict.fromkeys((layer.kind, layer.window) for layer in self.layers))
        ordered = sorted(self.layers, key=lambda layer: kinds.index((layer.kind, layer.window)))
        return tuple(
            self._group(kind, list(same), batch, length)
            for (kind, _), same in groupby(ordered, key=lambda layer: (layer.kind, layer.window))
        )

    def _group(self, kind: str, same: Sequence[LayerCache], batch: int, length: int) -> CacheLayers:
        nbytes = sum(sum(layer.sizes(batch, length, self.item_bytes, self.block)) for layer in same)
        return CacheLayers(kind=kind, layers=len(same), tokens=same[0].tokens(length, self.block), bytes=nbytes)
