"""What the dispatcher knows about each torch operation: results, cost, implementation, devices, and the memory that
CUDA's kernel takes beside its results. Any thread.

An `Operation` is derived once per overload from torch's schema (aliases, mutated arguments) and cached. The tables
below go by operator names: an older torch does not have them all.

Beside their results kernels take copies of operands that they cannot read as they lie, and accumulators. The CPU's,
which compute here, take none of it, or take it where nobody counts. Each rule names its place in PyTorch, below
`aten/src/ATen/native` where nothing else is said. cuDNN's workspaces are not here: they depend on the algorithm that it
chooses on the card (`core.planner.trace`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from devexplorer.core.virtual.operators import kernels
from devexplorer.core.virtual.operators.work import kind_of

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


def _convolution_backward_scratch(grad: Tensor, values: Tensor, weight: Tensor, *_: Any, **__: Any) -> list[int]:
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
    "aten::convolution_backward": _convolution_backward_scratch,
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


FRESH, VIEW = -1, -2
"""Kinds of a returned tensor; from 0 on it is the argument with that position itself (in-place, `out=`)."""

Flops = Callable[..., int]

DTYPE_NAMES: dict[torch.dtype, str] = {
    getattr(torch, name): name
    for name in ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8")
    if hasattr(torch, name)
}
"""dtypes with their own rate."""

aten = torch.ops.aten


class Operation:
    """One overload. `handler` replaces everything else where it is set."""

    __slots__ = (
        "arguments", "call", "composite", "convolution", "device_argument", "element_wise", "flops", "gathers",
        "handler", "host_arguments",
        "host_results", "kind", "mutates", "name", "numbers", "overload", "reshapes", "returns", "scratch",
        "view", "views_by_parts",
    )  # fmt: skip

    def __init__(self, overload: Any, handler: Callable[..., Any] | None = None) -> None:
        schema = overload._schema
        packet = overload._overloadpacket
        self.overload = overload
        self.name: str = schema.name
        self.arguments: list[str] = [argument.name for argument in schema.arguments]
        written = {
            name: position
            for position, argument in enumerate(schema.arguments)
            if is_written(argument)
            for name in argument.alias_info.before_set
        }
        self.returns: list[int] = [_returned(item.alias_info, written) for item in schema.returns]
        self.view = bool(self.returns) and all(kind == VIEW for kind in self.returns)
        """Whether it only makes another tensor of the same memory: no kernel, no cost."""
        # Not `written`: the alias of a list of tensors (`Tensor(a!)[] out`) has no name there.
        self.mutates = any(is_written(argument) for argument in schema.arguments)
        self.reshapes = self.mutates and (
            any(argument.is_out for argument in schema.arguments)
            or torch.Tag.inplace_view in overload.tags
            or packet in (aten.resize_, aten.set_, aten.resize_as_)
        )
        """Whether a mutated argument can have another shape afterwards."""
        self.composite = torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd")
        """Made of other operations: they are what the device runs (seen whole only in inference mode)."""
        self.views_by_parts = not torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "ADInplaceOrView")
        """Whether torch tracks views in the operations that it is made of, not around the whole (as around `chunk`)."""
        self.device_argument = "device" in self.arguments
        self.gathers = self.name in GATHERS
        self.host_arguments = HOST_ARGUMENTS.get(self.name, ())
        self.host_results = HOST_RESULTS.get(self.name, ())
        self.element_wise = _is_element_wise(self.name)
        self.numbers = NUMBER_ARGUMENTS.get(plain_name(self.name), ())
        if self.element_wise:
            self.numbers = tuple(argument.name for argument in schema.arguments if not is_written(argument))
        """Arguments that may be a CPU tensor without dimensions beside tensors of the device."""
        self.flops: Flops | None = SHORT_FLOPS.get(self.name) or flop_registry.get(packet)
        self.convolution = "conv" in self.name
        self.scratch: Scratch | None = SCRATCH.get(self.name) or ATTENTION_SCRATCH.get(self.name)
        self.kind = kind_of(self.name)
        self.call: Callable[..., Any] = COMPOSED.get(self.name, overload)
        self.handler = handler


def is_written(argument: Any) -> bool:
    """Whether an operation writes this argument of its schema."""
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def plain_name(name: str) -> str:
    """`add` of `aten::add_`."""
    return name.rpartition("::")[2].removesuffix("_")


def _is_element_wise(name: str) -> bool:
    """Whether each of its arguments may be a number of the CPU; so it is with operations of other libraries."""
    plain = plain_name(name)
    return not name.startswith("aten::") or plain in NUMBERS or plain.startswith(("_foreach_", "special_", "__"))


def _returned(alias: Any, written: dict[str, int]) -> int:
    if alias is None:
        return FRESH
    if alias.is_write:
        return next((written[name] for name in alias.before_set if name in written), FRESH)
    return VIEW


GATHERS = {"aten::embedding", "aten::index", "aten::index_select", "aten::gather", "aten::take"}
"""They read of their first argument only as much as they return."""

INDEXED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
"""Their second argument is indices, which may be truth values."""

HOST_ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(INDEXED, ("indices",)),
    "aten::_pack_padded_sequence": ("lengths",),
    "aten::_pack_padded_sequence_backward": ("batch_sizes",),
    "aten::_pad_packed_sequence": ("batch_sizes",),
    "aten::_ctc_loss": ("input_lengths", "target_lengths"),
    "aten::_ctc_loss_backward": ("input_lengths", "target_lengths"),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": (
        "cum_seq_q",
        "cum_seq_k",
        "philox_seed",
        "philox_offset",
    ),
}
"""Arguments that CUDA takes from the CPU too."""

NUMBERS = frozenset({
    "add", "allclose", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "copysign", "dist", "div", "eq", "floor_divide", "fmax", "fmin", "fmod", "ge", "gt", "heaviside", "hypot",
    "is_same_size", "ldexp", "le", "linspace", "logspace", "lt", "maximum", "minimum", "mul", "ne", "pow", "remainder",
    "rsub", "set", "sub", "where", "xlogy",
})  # fmt: skip
"""Operators that CUDA lets take a number from the CPU, in any argument that they do not write; in place as well.

Found by calling torch 2.14.1's own CUDA kernels with such a number in each argument of every operator of its test
database; all `special_`, `_foreach_` and shifts besides. They are those that `native_functions.yaml` marks
`device_check: NoCheck`, because `TensorIterator` checks, and that let it have one number. All others refuse it
(`stack`, `clamp`, `nll_loss`)."""
NUMBER_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "_fused_adam": ("lr",),
    "_fused_adamw": ("lr",),
    "_fused_adagrad": ("lr",),
    "_fused_sgd": ("lr",),
    "addcmul": ("tensor2",),
    "as_strided_scatter": ("src",),
    "binary_cross_entropy": ("weight",),
    "binary_cross_entropy_with_logits": ("weight", "pos_weight"),
    "copy": ("src",),
    "diagonal_scatter": ("src",),
    "fill": ("self", "value"),
    "index_fill": ("value",),
    "_index_put_impl": ("values",),
    "index_put": ("values",),
    "lerp": ("weight",),
    "linalg_pinv": ("atol", "rtol"),
    "logical_and": ("other",),
    "logical_or": ("other",),
    "logical_xor": ("other",),
    "masked_fill": ("value",),
    "select_scatter": ("src",),
    "slice_scatter": ("src",),
    "soft_margin_loss": ("target",),
    "_unsafe_index_put": ("values",),
}
"""The same where only some arguments may be one."""

HOST_RESULTS: dict[str, tuple[int, ...]] = {
    "aten::_pack_padded_sequence": (1,),
    "aten::_scaled_dot_product_fused_attention_overrideable": (2, 3, 6, 7, 8),
}
"""Positions of results that stay on the CPU: batch sizes of a packed sequence; what the host keeps for the backward of
attention."""


def rate(operation: Operation, dtype: torch.dtype | None) -> str:
    """Which of the profile's rates this operation runs at: float32 uses TF32 where torch's settings let CUDA do so.

    torch's defaults: convolutions may use TF32, products may not. `fp32_precision` follows the older settings
    (`allow_tf32`, `torch.set_float32_matmul_precision`), which cannot be asked any more once the new one was used.
    """
    if dtype is torch.float32:
        setting = torch.backends.cudnn.conv if operation.convolution else torch.backends.cuda.matmul  # type: ignore[attr-defined]
        return "tf32" if setting.fp32_precision == "tf32" else "float32"
    return "float32" if dtype is None else DTYPE_NAMES.get(dtype, "float32")


def _product(a: torch.Tensor, b: torch.Tensor, **_: Any) -> int:
    """2·M·N·K, times the batch."""
    return 2 * a.numel() * b.shape[-1]


def _sum_and_product(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **_: Any) -> int:
    return _product(a, b)


def _convolution_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Sequence[bool],
    **_: Any,
) -> int:
    """Each gradient that is wanted, of the input and of the weight, takes the products of forward. torch's registry
    counts that of a grouped weight as if it were not grouped."""
    return 2 * (x if transposed else grad).numel() * math.prod(weight.shape[1:]) * sum(output_mask[:2])


def _encoder_layer(src: torch.Tensor, width: int, heads: int, *weights: Any, **_: Any) -> int:
    """The fused Transformer encoder layer of inference: four projections, scores and mix, two feed-forward products."""
    batch, length, _width = src.shape
    hidden = next(w for w in reversed(weights) if isinstance(w, torch.Tensor) and w.dim() == 2).shape[1]
    return 2 * batch * length * (4 * width * width + 2 * length * width + 2 * width * hidden)


SHORT_FLOPS: dict[str, Flops] = {
    **dict.fromkeys(("aten::mm", "aten::bmm", "aten::_int_mm"), _product),
    **dict.fromkeys(
        ("aten::addmm", "aten::addmm_", "aten::baddbmm", "aten::baddbmm_", "aten::_addmm_activation"), _sum_and_product
    ),
    "aten::convolution_backward": _convolution_backward,
    "aten::mv": lambda a, b, **_: 2 * a.numel(),
    "aten::addmv": lambda c, a, b, **_: 2 * a.numel(),
    "aten::dot": lambda a, b, **_: 2 * a.numel(),
    "aten::_transformer_encoder_layer_fwd": _encoder_layer,
    "aten::_scaled_dot_product_fused_attention_overrideable": kernels.forward_flop,
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": kernels.backward_flop,
}
"""The most frequent ones without the detour that torch's registry takes (the tests compare), and some that it lacks or
counts otherwise."""


ATTENTION_SCRATCH: dict[str, Scratch] = {
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": kernels.backward_scratch,
}


def lstm_cell(gates_x: Any, gates_h: Any, cx: Any, bias_x: Any = None, bias_h: Any = None) -> tuple[Any, Any, Any]:
    """`_thnn_fused_lstm_cell` in plain operations: new h, new c, and the gates before activation for backward."""
    gates = gates_x + gates_h
    if bias_x is not None:
        gates = gates + bias_x + bias_h
    i, f, g, o = gates.chunk(4, 1)
    cy = f.sigmoid() * cx + i.sigmoid() * g.tanh()
    return o.sigmoid() * cy.tanh(), cy, gates


def lstm_cell_backward(
    grad_hy: Any, grad_cy: Any, cx: Any, cy: Any, workspace: Any, has_bias: bool
) -> tuple[Any, Any, Any]:
    """`_thnn_fused_lstm_cell_backward_impl`: gradients of the gates before activation, of c, and of one bias."""
    grad_gates, _, grad_cx, *_ = aten._thnn_differentiable_lstm_cell_backward(
        grad_hy, grad_cy, workspace, torch.zeros_like(workspace), None, None, cx, cy
    )
    return grad_gates, grad_cx, grad_gates.sum(0) if has_bias else None


def gru_cell(gates_x: Any, gates_h: Any, hx: Any, bias_x: Any = None, bias_h: Any = None) -> tuple[Any, Any]:
    """`_thnn_fused_gru_cell`: new h, and what backward needs (r and z before activation, both parts of n, h)."""
    if bias_x is not None:
        gates_x, gates_h = gates_x + bias_x, gates_h + bias_h
    (rx, zx, nx), (rh, zh, nh) = gates_x.chunk(3, 1), gates_h.chunk(3, 1)
    r, z = rx + rh, zx + zh
    n = (nx + r.sigmoid() * nh).tanh()
    return n + z.sigmoid() * (hx - n), torch.cat([r, z, nx, nh, hx], 1)


def gru_cell_backward(grad_hy: Any, workspace: Any, has_bias: bool) -> tuple[Any, Any, Any, Any, Any]:
    """`_thnn_fused_gru_cell_backward`: gradients of both gate inputs, of h, and of both biases."""
    r, z, nx, nh, hx = workspace.chunk(5, 1)
    gates_x, gates_h = torch.cat([r, z, nx], 1), torch.cat([torch.zeros_like(r), torch.zeros_like(z), nh], 1)
    grads = aten._thnn_differentiable_gru_cell_backward(grad_hy, gates_x, gates_h, hx, None, None)[:3]
    return *grads, *((grads[0].sum(0), grads[1].sum(0)) if has_bias else (None, None))


def histc(values: Any, *given: Any, **named: Any) -> Any:
    """`histc`, which CUDA has for integers too."""
    if values.is_floating_point():
        return aten.histc(values, *given, **named)
    return aten.histc(values.double(), *given, **named).to(values.dtype)


def encoder_layer(src: Any, *given: Any, **named: Any) -> Any:
    """`_transformer_encoder_layer_fwd`, also of a tensor without values, which torch 2.10 has no kernel for."""
    return torch.empty_like(src) if src.is_meta else aten._transformer_encoder_layer_fwd(src, *given, **named)


def convolution(values: Any, weight: Any, *given: Any, **named: Any) -> Any:
    """`convolution`, whose output is `channels_last` when either is, as cuDNN's (`cudnn_conv_suggest_memory_format` in
    aten/src/ATen/native/ConvUtils.h); without values torch makes it contiguous."""
    output = aten.convolution(values, weight, *given, **named)
    if output.is_meta and output.dim() == 4 and any(_channels_last(item) for item in (values, weight)):
        return output.to(memory_format=torch.channels_last)
    return output


def _channels_last(value: torch.Tensor) -> bool:
    """And not contiguous as well, as without planes."""
    return value.is_contiguous(memory_format=torch.channels_last) and not value.is_contiguous()


def _in_one_dtype(overload: Callable[..., Any]) -> Callable[..., Any]:
    """The operation, which refuses a weight or bias of another dtype than its input in PyTorch's words, as its CUDA
    kernel does; the CPU's takes them (torch 2.14)."""

    def call(*args: Any, **named: Any) -> Any:
        first = args[0].dtype
        for value in args[1:]:
            if isinstance(value, torch.Tensor) and value.dtype != first:
                wanted, found = SCALAR_TYPES.get(first, first), SCALAR_TYPES.get(value.dtype, value.dtype)
                raise RuntimeError(f"expected scalar type {wanted} but found {found}")
        return overload(*args, **named)

    return call


SCALAR_TYPES = {torch.float16: "Half", torch.bfloat16: "BFloat16", torch.float32: "Float", torch.float64: "Double"}
"""As PyTorch's kernels name them."""
COMPOSED: dict[str, Callable[..., Any]] = {
    "aten::native_layer_norm": _in_one_dtype(aten.native_layer_norm.default),
    "aten::native_group_norm": _in_one_dtype(aten.native_group_norm.default),
    **kernels.COMPOSED,
    "aten::convolution": convolution,
    "aten::_transformer_encoder_layer_fwd": encoder_layer,
    "aten::histc": histc,
    "aten::_thnn_fused_lstm_cell": lstm_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    "aten::_thnn_fused_gru_cell": gru_cell,
    "aten::_thnn_fused_gru_cell_backward": gru_cell_backward,
    "aten::_scaled_dot_product_fused_attention_overrideable": kernels.forward,
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": kernels.backward,
}
"""What torch has for accelerators only, fused kernels above all; the CPU computes it with plain operations, counted
as one kernel."""


_MIXED = "Expected all tensors to be on the same device, but"
"""How both of PyTorch's refusals begin: that of its `TensorIterator`, which runs what is element-wise, and that of the
wrappers around the other kernels (`aten/src/ATen/core/adaption.cpp` since 2.8)."""


def check_devices(operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse tensors from different devices in PyTorch's words. What CUDA takes from the CPU may be there."""
    named = [*zip(operation.arguments, args, strict=False), *kwargs.items()]
    first = named[0][1]
    if _is_host(first) and "indices" in operation.host_arguments:
        raise RuntimeError(
            f"indices should be either on cpu or on the same device as the indexed tensor ({first.device})"
        )
    seen: str | None = None
    for name, value in named:
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(tensor, torch.Tensor):
                continue
            joins = name in operation.host_arguments or (tensor.dim() == 0 and name in operation.numbers)
            if joins and _is_host(tensor):
                continue
            seen = seen or str(tensor.device)
            if str(tensor.device) != seen:
                if operation.element_wise:
                    raise RuntimeError(f"{_MIXED} found at least two devices, {seen} and {tensor.device}!")
                raise RuntimeError(
                    f"{_MIXED} got {name} is on {tensor.device}, different from other tensors on {seen}"
                    f" (when checking argument in method wrapper_CUDA_{plain_name(operation.name)})"
                )


def _is_host(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"
