"""`devexplorer fit --generate`: what is asked about generating text, and the figures for `--json`. Main thread; no
torch."""

from __future__ import annotations

import argparse
from typing import Any

from msgspec.structs import asdict

from devexplorer.core.base import parse_dtype
from devexplorer.core.cli.terminal.findings import Findings
from devexplorer.core.planner.serving.request import KV_DTYPES
from devexplorer.core.planner.serving_records import ServingFit, ServingSpec

PROMPT = 512
"""Tokens, where nothing is said."""
_OPTIONS = ("prompt", "kv_dtype", "kv_block", "prefill_chunk", "tensor_parallel", "weights")
_REFUSED = ("train", "optimizer", "checkpointing", "autocast", "input", "input_copy", "curve")


def serving_spec(arguments: argparse.Namespace, findings: Findings) -> ServingSpec | None:
    """None without `--generate`."""
    given = [name for name in _OPTIONS if getattr(arguments, name) is not None]
    if arguments.generate is None:
        for name in given:
            findings.add(f"--{name.replace('_', '-')} is about generating text; give --generate N as well")
        return None
    for name in _REFUSED:
        if getattr(arguments, name):
            findings.add(f"--{name.replace('_', '-')} and --generate exclude each other")
    counts = {
        name: findings.count(getattr(arguments, name), f"--{name.replace('_', '-')}")
        for name in ("generate", "prompt", "kv_block", "prefill_chunk", "tensor_parallel")
    }
    dtype = findings.parsed(arguments.kv_dtype, parse_dtype, None)
    return ServingSpec(
        generate=counts["generate"] or 1,
        prompt=counts["prompt"] or PROMPT,
        kv_dtype=findings.one_of(dtype, KV_DTYPES, "--kv-dtype"),
        kv_block=counts["kv_block"],
        tensor_parallel=counts["tensor_parallel"] or 1,
        prefill_chunk=counts["prefill_chunk"],
        weights=arguments.weights or "",
    )


def serving_document(serving: ServingFit | None) -> dict[str, Any]:
    """Keys that join those of a card; none without `--generate`."""
    if serving is None:
        return {}
    return asdict(serving) | {"cache": [asdict(layers) for layers in serving.cache]}
