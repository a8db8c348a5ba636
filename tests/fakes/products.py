"""The time of a product on a virtual GPU, from its roofline and the host's launch."""

from __future__ import annotations

from typing import Any

from devexplorer.core.base import item_bytes, product_dtype
from devexplorer.core.virtual.device.cost import Kind, Product, Work, launch_seconds, overlapped


def matmul_seconds(machine: Any, device: str, m: int, n: int, k: int, dtype: str, batch: int = 1) -> float:
    """Seconds of a product (M×K)·(K×N), or a batch of them, on that card; `tf32`: TF32 products of float32 tensors."""
    nbytes = (m * k + k * n) * item_bytes(dtype) + m * n * item_bytes(product_dtype(dtype))
    kind = Kind.PRODUCT if batch == 1 else Kind.BATCHED_PRODUCT
    work = Work(kind, batch * 2 * m * n * k, batch * nbytes, dtype, Product(m, n, k, batch))
    return overlapped(machine.gpu(device).roofline.seconds(work), launch_seconds())
