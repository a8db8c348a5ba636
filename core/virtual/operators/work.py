"""Reads off an operation and its tensors what the cost model has to know of it, and counts calls of modules: what eager
PyTorch spends in Python for each is a part of a small step's time. Any thread."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook

from devexplorer.core.virtual.device.cost import HostCall, Kind, Pass, Product, Work

KINDS: dict[str, Kind] = {
    "aten::mm": Kind.PRODUCT,
    "aten::addmm": Kind.PRODUCT,
    "aten::addmm_": Kind.PRODUCT,
    "aten::_addmm_activation": Kind.PRODUCT,
    "aten::_int_mm": Kind.PRODUCT,
    "aten::_scaled_mm": Kind.PRODUCT,
    "devexplorer_serving::packed_product": Kind.PRODUCT,
    "devexplorer_serving::latent_attention": Kind.ATTENTION,
    "aten::bmm": Kind.BATCHED_PRODUCT,
    "aten::baddbmm": Kind.BATCHED_PRODUCT,
    "aten::baddbmm_": Kind.BATCHED_PRODUCT,
    "aten::convolution": Kind.CONVOLUTION,
    "aten::convolution_backward": Kind.CONVOLUTION,
    "aten::_scaled_dot_product_fused_attention_overrideable": Kind.ATTENTION,
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": Kind.ATTENTION_BACKWARD,
    "aten::native_batch_norm": Kind.BATCH_NORM,
    "aten::native_batch_norm_backward": Kind.BATCH_NORM_BACKWARD,
    "aten::native_layer_norm": Kind.LAYER_NORM,
    "aten::native_layer_norm_backward": Kind.LAYER_NORM_BACKWARD,
    "aten::native_group_norm": Kind.LAYER_NORM,
    "aten::native_group_norm_backward": Kind.LAYER_NORM_BACKWARD,
    "aten::_fused_rms_norm": Kind.LAYER_NORM,
    "aten::_fused_rms_norm_backward": Kind.LAYER_NORM_BACKWARD,
    "aten::_softmax": Kind.SOFTMAX,
    "aten::_log_softmax": Kind.SOFTMAX,
    "aten::_softmax_backward_data": Kind.SOFTMAX_BACKWARD,
    "aten::_log_softmax_backward_data": Kind.SOFTMAX_BACKWARD,
    "aten::native_dropout": Kind.DROPOUT,
    "aten::max_pool2d_with_indices": Kind.POOLING,
    "aten::max_pool2d_with_indices_backward": Kind.POOLING,
    "aten::sum": Kind.REDUCTION,
    "aten::mean": Kind.REDUCTION,
    "aten::embedding": Kind.EMBEDDING,
    "aten::embedding_dense_backward": Kind.EMBEDDING,
    "aten::clone": Kind.COPY,
    "aten::copy_": Kind.COPY,
    "aten::_to_copy": Kind.COPY,
    **dict.fromkeys(
        (
            "aten::_unsafe_view", "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty",
            "aten::new_empty_strided", "aten::as_strided_",
        ),
        Kind.NOTHING,
    ),
}  # fmt: skip
"""Operator -> kind; whatever is not here is elementwise, and `_foreach_…` an optimizer's."""


def kind_of(name: str) -> Kind:
    """Of an operator, `aten::mm`, before its arguments are known."""
    steps = name.startswith(("aten::_foreach_", "aten::_fused_"))
    return KINDS.get(name, Kind.OPTIMIZER if steps else Kind.ELEMENTWISE)


def call_of(kind: Kind) -> HostCall:
    """What an operation of this kind is to the host, in the pass that the calling thread is in."""
    if torch._C._current_graph_task_id() == -1:
        return HostCall.FORWARD
    return HostCall.CONVOLUTION_BACKWARD if kind is Kind.CONVOLUTION else HostCall.BACKWARD


def work_of(kind: Kind, dtype: str, flop: int, nbytes: int, args: Sequence[Any], result: Any) -> tuple[Work, ...]:
    """The kernels of an operation of this kind. `args`, `result`: of the operation, the tensors inside.

    dtype: whose rate it computes at. flop, nbytes: of the whole.
    """
    match kind:
        case Kind.PRODUCT | Kind.BATCHED_PRODUCT:
            return (Work(kind, flop, nbytes, dtype, _product(args)),)
        case Kind.CONVOLUTION:
            if isinstance(result, Tensor):
                return (_convolution(dtype, flop, nbytes, args, result),)
            return _convolution_backward(dtype, flop, args)
        case Kind.BATCH_NORM:
            training = len(args) > 5 and bool(args[5])
            chosen = Kind.BATCH_NORM if training else Kind.BATCH_NORM_INFERENCE
            return (Work(chosen, 0, nbytes, nchw_bytes=_nchw_bytes(args[0])),)
        case Kind.BATCH_NORM_BACKWARD:
            return (Work(kind, 0, nbytes, nchw_bytes=_nchw_bytes(args[1])),)
    return (Work(kind, flop, nbytes, dtype),)


def _product(args: Sequence[Any]) -> Product | None:
    """Of (a, b), or (c, a, b) where a product is added to something; or of (a, packed weights, columns)."""
    if isinstance(args[1], (list, tuple)):
        a = args[0]
        return Product(a.shape[-2], args[2], a.shape[-1], math.prod(a.shape[:-2]))
    factors = [item for item in args[:3] if isinstance(item, Tensor) and item.dim() >= 2]
    if len(factors) < 2:
        return None
    # `addmm(c, a, b)`, where c can be a row or have as many dimensions; `_scaled_mm(a, b, scale, …)`, where the scale
    # can be a column, multiplies 8 bits, to which nothing is added
    a, b = factors[:2] if factors[0].element_size() == 1 else factors[-2:]
    return Product(a.shape[-2], b.shape[-1], a.shape[-1], math.prod(a.shape[:-2]))


def _nchw_bytes(*activations: Tensor) -> int:
    """Bytes of those that have planes, and are not in `channels_last`."""
    first = activations[0]
    if first.dim() != 4 or first.is_contiguous(memory_format=torch.channels_last):
        return 0
    return sum(item.nbytes for item in activations)


def _geometry(weight: Tensor, stride: Sequence[int], groups: int) -> Kind:
    if groups > 1:
        return Kind.DEPTHWISE_CONVOLUTION if weight.shape[1] == 1 else Kind.GROUPED_CONVOLUTION
    window = tuple(weight.shape[2:])
    if all(size == 1 for size in window):
        return Kind.CONVOLUTION_1X1
    return Kind.CONVOLUTION_3X3 if window == (3, 3) and all(step == 1 for step in stride) else Kind.CONVOLUTION


def _convolution(dtype: str, flop: int, nbytes: int, args: Sequence[Any], result: Tensor) -> Work:
    x, weight, stride, transposed, groups = args[0], args[1], args[3], args[6], args[8]
    product, part = _forward(result, weight, groups), Pass.FORWARD
    if transposed:  # what the gradient of a convolution's input is
        product, part = _input_gradient(result, weight, stride, groups), Pass.INPUT_GRADIENT
    return Work(_geometry(weight, stride, groups), flop, nbytes, dtype, product, part, _nchw_bytes(x, result))


def _pixels(activations: Tensor) -> int:
    return activations.shape[0] * math.prod(activations.shape[2:])


def _forward(result: Tensor, weight: Tensor, groups: int) -> Product:
    return Product(_pixels(result), weight.shape[0] // groups, math.prod(weight.shape[1:]), groups)


def _input_gradient(gradient: Tensor, weight: Tensor, stride: Sequence[int], groups: int) -> Product:
    summed = weight.shape[0] // groups * math.prod(weight.shape[2:]) // math.prod(stride)
    return Product(_pixels(gradient), weight.shape[1], max(summed, 1), groups)


def _convolution_backward(dtype: str, flop: int, args: Sequence[Any]) -> tuple[Work, ...]:
    """A kernel for each gradient that is wanted."""
    grad, x, weight, stride, transposed, groups, mask = (args[at] for at in (0, 1, 2, 4, 7, 9, 10))
    kind = _geometry(weight, stride, groups)
    each = flop // max(sum(mask[:2]), 1)
    nbytes = grad.nbytes + x.nbytes + weight.nbytes
    nchw = _nchw_bytes(x, grad)
    works = []
    if mask[0]:
        product, part = _input_gradient(x, weight, stride, groups), Pass.INPUT_GRADIENT
        if transposed:
            product, part = _forward(x, weight, groups), Pass.FORWARD
        works.append(Work(kind, each, nbytes, dtype, product, part, nchw))
    if mask[1]:
        places = _pixels(x if transposed else grad)
        product = Product(weight.shape[0] // groups, math.prod(weight.shape[1:]), places, groups)
        works.append(Work(kind, each, nbytes, dtype, product, Pass.WEIGHT_GRADIENT, nchw))
    return tuple(works)


@contextmanager
def module_calls(on_call: Callable[[], None]) -> Iterator[None]:
    """While this lasts, `on_call` is called before each forward of a module on the calling thread."""
    here = threading.get_ident()

    def called(module: Any, inputs: Any) -> None:
        if threading.get_ident() == here:
            on_call()

    handle = register_module_forward_pre_hook(called)
    try:
        yield
    finally:
        handle.remove()
