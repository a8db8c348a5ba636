"""`torch.autocast("vgpu")`: which operations run in the lower precision and which in float32. Any thread.

torch has these lists in C++ for its own devices (`aten/src/ATen/autocast_mode.h`); for a device in Python they are
registered here. Unlike there, a weight's cast is not kept between uses, but within `keeping_casts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

KEY = "AutocastPrivateUse1"

LOWER = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input",
         "convolution", "addmm",
         "addmv", "addr", "matmul", "mm", "mv", "linear", "addbmm", "baddbmm", "bmm",
         "scaled_dot_product_attention")  # fmt: skip
"""They run in autocast's dtype."""

FULL = ("exp", "log", "log2", "log10", "log1p", "expm1", "rsqrt", "reciprocal", "pow.Tensor_Scalar", "softplus",
        "layer_norm", "group_norm",
        "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "nll_loss", "nll_loss2d", "cross_entropy_loss", "kl_div",
        "cosine_similarity", "binary_cross_entropy_with_logits", "softmax.int", "log_softmax.int", "cumsum", "cumprod",
        "sum",
        "sum.dim_IntList", "prod", "norm.Scalar", "dist", "cdist")  # fmt: skip
"""They run in float32."""

_casts: dict[int, tuple[torch.Tensor, torch.Tensor]] | None = None
"""`id()` of a weight -> itself and its cast; None: casts are not kept."""


@contextmanager
def keeping_casts() -> Iterator[None]:
    """Cast each float32 leaf that requires a gradient once, and keep that until the end, as CUDA's autocast does until
    it ends.

    torch does not notify a Python device when its autocast ends, so this goes around it. For plans, which
    are on one thread.
    """
    global _casts
    before, _casts = _casts, {}
    try:
        yield
    finally:
        _casts = before


def _cast(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if (
        _casts is None
        or value.dtype is not torch.float32
        or dtype is torch.float32
        or not (value.is_leaf and value.requires_grad)
    ):
        return value.to(dtype)
    if id(value) not in _casts:
        _casts[id(value)] = value, value.to(dtype)
    return _casts[id(value)][1]


def register(everything: Any, aten: Any) -> None:
    """Register both lists, and that every other operation takes its tensors as they are."""
    everything.fallback(torch.library.fallthrough_kernel, KEY)
    for names, lower in ((LOWER, True), (FULL, False)):
        for name in names:
            aten.impl(name, _casting(name, lower), KEY)


def _casting(name: str, lower: bool) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
    key = torch._C._parse_dispatch_key(KEY)
    assert key is not None
    keys = torch._C.DispatchKeySet(key)

    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.get_autocast_dtype("vgpu") if lower else torch.float32

        def cast(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                castable = (
                    value.is_floating_point() and value.dtype is not torch.float64 and value.device.type == "vgpu"
                )
                return _cast(value, dtype) if castable else value
            return value

        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operation(*map(cast, args), **{key: cast(value) for key, value in kwargs.items()})

    return run
