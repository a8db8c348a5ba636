"""The unavoidable differences between a virtual GPU and the CPU, each with its reason."""

from __future__ import annotations

import re
from typing import NamedTuple


class Known(NamedTuple):
    """Entries (a pattern), phases (a pattern) and words (a pattern) that a reason speaks of."""

    reason: str
    entries: str
    phases: str
    words: str


FORWARD = "forward|inference mode|lazy views"
GRADIENTS = "gradient|second gradient|lazy views"
KNOWN = (
    Known(
        "As on CUDA: indices for tensor_split have to be on the CPU, and the sample puts them on the device.",
        "tensor_split",
        ".*",
        "RuntimeError: tensor_split expected tensor_indices_or_sections to be on cpu",
    ),
    Known(
        "Virtual GPUs hold dense tensors only; the refusal says so.",
        "to_sparse",
        ".*",
        "NotImplementedError: virtual GPUs hold dense tensors only",
    ),
    Known(
        "As on CUDA: composed of max_pool2d, whose result is squeezed. The CPU has a kernel of its own where no"
        " gradient is wanted.",
        "nn.functional.max_pool1d",
        FORWARD,
        "view True",
    ),
    Known(
        "As CUDA's fused kernels lay their results out: taking the heads together copies nothing.",
        "nn.functional.scaled_dot_product_attention",
        FORWARD,
        "strides",
    ),
    Known(
        "torch computes these gradients for tensor subclasses without writing in place; the values are the same, the"
        " layout is another.",
        "ormqr|linalg.det",
        GRADIENTS,
        "strides",
    ),
    Known(
        "torch computes the gradient of prod for tensor subclasses in a way that knows that this second gradient is"
        " zero.",
        "prod",
        "second gradient",
        "None instead of zeros",
    ),
    Known(
        "On the CPU inference mode marks these parts as views; here they are plain results over the same memory, as"
        " outside of it.",
        "unsafe_chunk|unsafe_split",
        "inference mode",
        "view False instead of True",
    ),
)


def reason(entry: str, phase: str, words: str) -> str | None:
    """The reason for this difference; None if it is unknown."""
    for one in KNOWN:
        if re.fullmatch(one.entries, entry) and re.fullmatch(one.phases, phase) and re.match(one.words, words):
            return one.reason
    return None
