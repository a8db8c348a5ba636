"""All-reduce: the sum of a tensor of every rank, in every rank. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature(needs=("charts",), benchmark="core.allreduce.kind:AllReduceKind")
