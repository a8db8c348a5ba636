"""Memory that CUDA's kernels take beside their results while they run: copies of operands that they cannot read as they
lie, and accumulators. Any thread.

The CPU's kernels, which compute here, take none of it, or take it where nobody counts. Each rule names its place in
PyTorch, below `aten/src/ATen/native` where nothing else is said. cuDNN's workspaces are not here: they depend on the
algorithm that it chooses on the card (`core.planner.workspaces`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Scratch = Callable[..., Sequence[int]]
"""Arguments of an operation, as the tensors inside -> bytes of each block that its kernel takes and gives back."""

SORTED_FROM = 3072
"""Up to so many indices the gradient of an embedding is added up in place."""
ROWS_OF_A_SEGMENT = 10
"""NROWS_PER_THREAD: equal indices beyond so many are summed in several parts."""


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _copied(operands: Sequence[Any], readable: Callable[[Tensor], bool]) -> list[int]:
    return [_size(item) for item in operands if isinstance(item, Tensor) and not readable(item)]


def _by_cublas(matrix: Tensor) -> bool:
    """Whether cuBLAS can read it, as rows or as columns: no stride may be 0, as those of an expanded tensor are
    (`prepare_matrix_for_cublas` in cuda/cuBlasCommonArgs.h, `prepare_batch_matrix_for_cublas` in cuda/Blas.cpp)."""
    if matrix.is_contiguous() and 0 not in matrix.stride():
        return True
    rows, columns = matrix.shape[-2:]
    row, column = matrix.stride()[-2:]
    return (column == 1 and row >= max(1, columns)) or (row == 1 and column >= max(1, rows)) or matrix.numel() < 2


def _factors(*operands: Any, **_: Any) -> list[int]:
    return _copied(operands[:2], _by_cublas)


def _factors_after_sum(*operands: Any, **_: Any) -> list[int]:
    return _copied(operands[1:3], _by_cublas)


def _format(*tensors: Tensor) -> torch.memory_format:
    """`cudnn_conv_suggest_memory_format` in ConvUtils.h."""
    last = any(
        item.dim() == 4 and item.is_contiguous(memory_format=torch.channels_last) and not item.is_contiguous()
        for item in tensors
    )
    return torch.channels_last if last else torch.contiguous_format


def _convolution(values: Tensor, weight: Tensor, *_: Any, **__: Any) -> list[int]:
    """`_convolution` in Convolution.cpp, `cudnn_convolution_forward` in cudnn/ConvShared.cpp."""
    layout = _format(values, weight)
    return _copied((values, weight), lambda item: item.is_contiguous(memory_format=layout))


def _convolution_backward(grad: Tensor, values: Tensor, weight: Tensor, *_: Any, **__: Any) -> list[int]:
    """`convolution_backward` in Convolution.cpp, `cudnn_convolution_backward` in cudnn/ConvShared.cpp."""
    layout = _format(values, weight)
    return _copied((grad, values, weight), lambda item: item.is_contiguous(memory_format=layout))


def _batch_norm_backward(grad: Tensor, values: Tensor, *_: Any, **__: Any) -> list[int]:
    """`cudnn_batch_norm_backward` in cudnn/BatchNorm.cpp."""
    layout = _format(values)
    return _copied((grad, values), lambda item: item.is_contiguous(memory_format=layout))


def _whole(count: int) -> Scratch:
    """A kernel that makes its first so many operands contiguous."""

    def scratch(*operands: Any, **_: Any) -> list[int]:
        return _copied(operands[:count], Tensor.is_contiguous)

    return scratch


def _embedding_backward(grad: Tensor, indices: Tensor, rows: int, *_: Any, **__: Any) -> list[int]:
    """`embedding_dense_backward_cuda` in cuda/Embedding.cu: from `SORTED_FROM` indices on these are sorted with their
    places, and `embedding_backward_cuda_kernel` (cuda/EmbeddingBackwardKernel.cu) sums equal ones in float32. It takes
    room for as many sums as there can be (`max_partial_segment`), and for where each of its segments begins. What the
    sort takes is CUB's and left out."""
    copied = _copied((grad,), Tensor.is_contiguous)
    count = indices.numel()
    if count <= SORTED_FROM:
        return copied
    segments = min(count, rows)
    sums = count // ROWS_OF_A_SEGMENT + segments
    width = grad.shape[-1] * (8 if grad.dtype is torch.float64 else 4)
    places = [indices.element_size() * number for number in (count, count, count, segments, segments, sums)]
    return [*copied, *places, sums * width]


def _softmax_backward(grad: Tensor, output: Tensor, *_: Any, **__: Any) -> list[int]:
    """`softmax_backward_cuda_out` in cuda/SoftMax.cu multiplies the two first. The product lies as they do, and
    `host_softmax_backward` makes it contiguous, and the output."""
    product = torch.empty_like(grad, device="meta")
    return [_size(product), *_copied((product, output), Tensor.is_contiguous)]


SCRATCH: dict[str, Scratch] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::_int_mm"), _factors),
    **dict.fromkeys(
        ("aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::baddbmm_", "aten::_addmm_activation"),
        _factors_after_sum,
    ),
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::native_batch_norm_backward": _batch_norm_backward,
    # `layer_norm_cuda`, `layer_norm_backward_cuda` in cuda/layer_norm_kernel.cu; `NativeGroupNorm…` in group_norm.cpp
    "aten::native_layer_norm": _whole(1),
    "aten::native_layer_norm_backward": _whole(2),
    "aten::native_group_norm_backward": _whole(2),
    # `host_softmax` and `host_softmax_backward` in cuda/SoftMax.cu
    **dict.fromkeys(("aten::_softmax", "aten::_log_softmax"), _whole(1)),
    "aten::_log_softmax_backward_data": _whole(2),
    "aten::_softmax_backward_data": _softmax_backward,
    "aten::embedding_dense_backward": _embedding_backward,
}
"""Operations with other kernels on CUDA; attention's are in `attention`."""
