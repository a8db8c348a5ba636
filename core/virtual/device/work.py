"""What a kernel does, as the cost model sees it: its kind, its FLOP and bytes, and the matrix product that it is. No
torch; any thread."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """Kinds of kernels that reach different shares of a card's rates."""

    PRODUCT = "matrix product"
    BATCHED_PRODUCT = "batched matrix product"
    CONVOLUTION = "convolution"
    CONVOLUTION_1X1 = "1x1 convolution"
    CONVOLUTION_3X3 = "3x3 convolution"
    """Stride 1: Winograd's algorithm can compute it."""
    GROUPED_CONVOLUTION = "grouped convolution"
    DEPTHWISE_CONVOLUTION = "depthwise convolution"
    ATTENTION = "attention"
    ATTENTION_BACKWARD = "attention backward"
    BATCH_NORM = "batch norm"
    BATCH_NORM_BACKWARD = "batch norm backward"
    BATCH_NORM_INFERENCE = "batch norm, inference"
    LAYER_NORM = "layer norm"
    LAYER_NORM_BACKWARD = "layer norm backward"
    SOFTMAX = "softmax"
    SOFTMAX_BACKWARD = "softmax backward"
    DROPOUT = "dropout"
    POOLING = "pooling"
    REDUCTION = "reduction"
    EMBEDDING = "embedding"
    OPTIMIZER = "optimizer"
    COPY = "copy"
    ELEMENTWISE = "elementwise"
    NOTHING = "no kernel"
    """Only the host works: a tensor is made, or seen in another shape."""


CONVOLUTIONS = frozenset(
    {
        Kind.CONVOLUTION,
        Kind.CONVOLUTION_1X1,
        Kind.CONVOLUTION_3X3,
        Kind.GROUPED_CONVOLUTION,
        Kind.DEPTHWISE_CONVOLUTION,
    }
)


class Pass(StrEnum):
    """Which of a convolution's results is computed."""

    FORWARD = "forward"
    INPUT_GRADIENT = "input gradient"
    WEIGHT_GRADIENT = "weight gradient"


class Product(NamedTuple):
    """(M×K)·(K×N), `batch` times."""

    m: int
    n: int
    k: int
    batch: int = 1


class Work(NamedTuple):
    """One kernel."""

    kind: Kind = Kind.ELEMENTWISE
    flop: int = 0
    nbytes: int = 0
    """What it reads and writes, each tensor once."""
    dtype: str = "float32"
    """Whose rate it computes at, `tf32` for float32 products in TF32."""
    product: Product | None = None
    """The matrix product that it is, or that a convolution is equal to."""
    part: Pass = Pass.FORWARD
    nchw_bytes: int = 0
    """Of the activations of a convolution or batch norm, where they are not in `channels_last`."""


class HostCall(StrEnum):
    """What keeps the host busy; the value is the name of the cost model's parameter for it."""

    FORWARD = "host operation"
    """An operation that is not part of a backward: from Python to the launch."""
    BACKWARD = "host backward operation"
    """Of backward, which runs in C++; convolutions apart."""
    CONVOLUTION_BACKWARD = "host backward convolution"
    VIEW = "host view"
    MODULE = "host module"
    """A call of an `nn.Module`."""
