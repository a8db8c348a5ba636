"""A card's own factors in place of the cost model's averages: which parameters each of them changes. No torch; any
thread.

A factor is measured over modelled: the parameters that it stands for are multiplied by it. `core.planner.calibrate`
measures them.
"""

from __future__ import annotations

from collections.abc import Mapping

from devexplorer.core.virtual.device.work import HostCall

MEMORY, KERNEL, HOST, LINK = "memory", "kernel", "host", "link"
EIGHT_BIT = "8-bit"
CONVOLUTION = "convolution"
"""Followed by a unit: `convolution half`."""

SCALED: Mapping[str, tuple[str, ...]] = {
    MEMORY: ("bandwidth",),
    KERNEL: ("kernel",),
    HOST: tuple(HostCall),
    "vector": ("vector",),
    "tf32": ("tf32",),
    "half": ("half",),
    EIGHT_BIT: ("share 8-bit product",),
    "convolution vector": ("share convolution vector",),
    "convolution tf32": ("share convolution tf32",),
    "convolution half": ("share convolution half",),
    LINK: (),
}
"""Factor -> parameters of the cost model. `host`: what is measured is an operation of forward; backward, views and
modules run on the same processor. `link` scales the share of the host link's rate that a large copy reaches
(`cost.transfer_seconds`)."""

TITLES: Mapping[str, str] = {
    MEMORY: "memory bandwidth",
    KERNEL: "time per kernel",
    HOST: "host time per operation",
    "vector": "float32 products",
    "tf32": "TF32 products",
    "half": "16-bit products",
    EIGHT_BIT: "8-bit products",
    "convolution vector": "float32 convolutions",
    "convolution tf32": "TF32 convolutions",
    "convolution half": "16-bit convolutions",
    LINK: "host link",
}
"""Factor -> what it is called."""

TIMES = frozenset({KERNEL, HOST})
"""Factors of times; the others are of rates."""


def scaled(parameters: Mapping[str, float], factors: Mapping[str, float]) -> dict[str, float]:
    """The parameters of a card with these factors; unknown names, of a newer version, change nothing."""
    result = dict(parameters)
    for name, factor in factors.items():
        for parameter in SCALED.get(name, ()):
            result[parameter] = result[parameter] * factor
    return result
