"""Operators on two tensors of the workspace. Runs on the jobs thread."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from devexplorer.core.base.errors import BadInput
from devexplorer.core.models.run import operand
from devexplorer.core.workspace.reports import CombineFailed

Operator = Callable[[Any, Any], Any]
_OPERATORS: Mapping[str, Operator] = {"+": operator.add, "-": operator.sub, "*": operator.mul, "@": operator.matmul}


def checked_operator(sign: str) -> Operator:
    """What the sign means; `BadInput` names those that there are."""
    if sign not in _OPERATORS:
        raise BadInput(f"there is no operator '{sign}'; there are {' '.join(_OPERATORS)}")
    return _OPERATORS[sign]


def applied(known: Operator, left: tuple[str, Tensor], right: tuple[str, Tensor]) -> Tensor:
    """The result for two named tensors; raises `CombineFailed` with where they are."""
    try:
        result: Tensor = known(left[1], right[1])
    except RuntimeError as error:
        raise CombineFailed(str(error).strip().splitlines()[0], left=operand(*left), right=operand(*right)) from error
    return result
