"""The first rows of a tensor as text: only those elements travel to the host. Runs on the jobs thread."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ROWS, COLUMNS = 8, 8
"""How much is shown of the last two dimensions, at the first index of all others."""


def rows_text(tensor: Tensor) -> str:
    """Lines of values, columns aligned, and what was left out; a number alone for a tensor without dimensions."""
    if tensor.numel() == 0:
        return "(no elements)"
    table = tensor
    leading = max(tensor.dim() - 2, 0)
    for _ in range(leading):
        table = table[0]
    while table.dim() < 2:
        table = table.unsqueeze(0)
    rows, columns = table.shape
    part = table[:ROWS, :COLUMNS].to("cpu")
    if part.dtype.is_floating_point:
        part = part.to(torch.float64)
    cells = [[_cell(value) for value in row] for row in part.tolist()]
    width = max(len(cell) for row in cells for cell in row)
    more = "  …" if columns > COLUMNS else ""
    lines = ["  ".join(cell.rjust(width) for cell in row) + more for row in cells]
    if rows > ROWS:
        lines.append("…")
    if leading:
        lines.insert(0, f"at [{', '.join('0' * leading)}]:")
    return "\n".join(lines)


def value_text(value: float | None) -> str:
    """Six significant digits, without the noise of trailing zeros."""
    return "—" if value is None else f"{value:.6g}"


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    return f"{value:.5g}" if math.isfinite(value) else str(value)
