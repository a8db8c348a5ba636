"""Cuts a tensor into pieces that fit a cache, so that several passes over a piece read memory once. Any
thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

HOST_PIECE_BYTES = 2 << 20
"""On the CPU: about what the second-level caches of two cores hold."""
DEVICE_PIECE_BYTES = 16 << 20
"""On accelerators: their caches hold tens of MiB, and each operation costs a launch."""


def piece_elements(tensor: Tensor) -> int:
    """Elements of a piece of this tensor, counted in the four bytes of float32 in which small dtypes are computed."""
    limit = HOST_PIECE_BYTES if tensor.device.type == "cpu" else DEVICE_PIECE_BYTES
    return limit // max(tensor.element_size(), 4)


def pieces(tensor: Tensor, limit: int) -> Iterator[Tensor]:
    """Every element once, in one-dimensional pieces of at most `limit` elements; views, except for tensors with
    gaps.

    The order of the elements is that of the memory where this is possible, else that of the dimensions.
    """
    for (piece,) in pieces_together((tensor,), limit):
        yield piece


def pieces_together(tensors: Sequence[Tensor], limit: int) -> Iterator[tuple[Tensor, ...]]:
    """The same of several tensors of one shape, on whatever devices: the same elements of each, in the order of the
    first one's memory."""
    first = tensors[0]
    strides = first.stride()
    order = sorted(
        range(first.dim()), key=lambda axis: (-strides[axis], axis)
    )  # a transposed tensor is contiguous again
    yield from _cut([tensor.permute(order) for tensor in tensors], limit)


def _cut(tensors: list[Tensor], limit: int) -> Iterator[tuple[Tensor, ...]]:
    first = tensors[0]
    if first.numel() == 0:
        return
    if all(tensor.is_contiguous() for tensor in tensors):
        yield from zip(*(tensor.view(-1).split(limit) for tensor in tensors), strict=True)
    elif first.numel() <= limit:
        yield tuple(tensor.reshape(-1) for tensor in tensors)
    else:
        axis = max(range(first.dim()), key=lambda item: first.shape[item])
        rows = max(1, limit // (first.numel() // first.shape[axis]))
        for parts in zip(*(tensor.split(rows, axis) for tensor in tensors), strict=True):
            yield from _cut(list(parts), limit)
