"""How much of a card a matrix product keeps busy: it is cut into tiles, and the multiprocessors work on them in waves.
Pure functions; any thread.

As NVIDIA's "Matrix Multiplication Background User's Guide" explains it (sections on tile and wave quantization): the
last wave, and tiles that reach over the edge, take as long as full ones. cuBLAS chooses the tile, and splits K where
there are too few of them; so does `padded_flop`, by taking the fastest.
"""

from __future__ import annotations

import math
from functools import lru_cache

from devexplorer.core.virtual.device.work import Product

TILES = ((256, 128, 1.0), (128, 128, 0.92), (128, 64, 0.78), (64, 64, 0.60), (64, 32, 0.45))
"""Rows and columns of a tile, and the share of the largest tile's rate that it reaches: a smaller one reads more for
each product. The order is the guide's; the shares are an assumption, which the fitted efficiencies go with."""
SPLITS = (1, 2, 4, 8, 16, 32)
LEAST_K = 128
"""K is not split into less."""
START_K = 32
"""A tile begins by filling its registers and ends by writing: as long as so much of K."""
SPLIT_COST = 1.03
"""What adding up the parts of a split K costs."""


@lru_cache(maxsize=1 << 16)
def padded_flop(product: Product, multiprocessors: int) -> float:
    """FLOP that the whole card could have done in the time that this product keeps it busy."""
    m, n, k, batch = product
    best = math.inf
    for high, wide, share in TILES:
        for rows, columns in ((high, wide), (wide, high)):
            tiles = math.ceil(m / rows) * math.ceil(n / columns) * batch
            for split in SPLITS:
                if split > 1 and k < split * LEAST_K:
                    break
                waves = math.ceil(tiles * split / multiprocessors)
                spent = waves * rows * columns * (math.ceil(k / split) + START_K) / share
                best = min(best, spent * SPLIT_COST if split > 1 else spent)
            if high == wide:
                break
    return 2 * best * multiprocessors
