"""How large the state of an 8-bit Adam is, computed: nothing here runs that optimizer. In the planner's process.

As bitsandbytes lays it out (`Optimizer2State.init_state` in bitsandbytes/optim/optimizer.py, and its page "8-bit
optimizers"): per parameter two states of one byte per element and, for each of them, one float32 per block of 256
elements; parameters below 4096 elements keep two float32 states. The two code books of 256 float32 are there once per
card. The update needs no temporary tensors.
"""

from __future__ import annotations

from torch import nn

from devexplorer.core.planner.run import DeviceMap

BLOCK_ELEMENTS = 256
SMALLEST_ELEMENTS = 4096
"""Parameters with fewer elements keep 32 bits."""
CODE_BOOK_BYTES = 256 * 4


def state_sizes(model: nn.Module, device_map: DeviceMap) -> list[list[int]]:
    """Bytes of each tensor of the state, by card, for every parameter that requires a gradient."""
    where = dict(device_map.cards)
    sizes: list[list[int]] = [[] for _ in device_map.profiles]
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        card, elements = sizes[where.get(id(parameter), 0)], parameter.numel()
        if elements < SMALLEST_ELEMENTS:
            card += [4 * elements] * 2
            continue
        blocks = -(-elements // BLOCK_ELEMENTS)
        card += [elements, elements, 4 * blocks, 4 * blocks]
    return [[*([CODE_BOOK_BYTES] * 2 if card else []), *card] for card in sizes]
