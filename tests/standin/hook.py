"""Lets the CPU compute torch's CUDA operators, directly after torch is imported. A `.pth` file of the environment
imports this in every Python process; where no cards are to be seen it does nothing."""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

OPERATORS = Path(__file__).with_name("fake_cuda_operators.so")


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Finds `torch` as the others do, and adds to what its module runs."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_and_load(module: ModuleType) -> None:
            run(module)
            ctypes.CDLL(str(OPERATORS))

        spec.loader.exec_module = run_and_load  # type: ignore[method-assign]
        return spec


if os.environ.get("FAKE_CUDA_LEDGER") and os.environ.get("FAKE_CUDA_OPERATORS") != "torch":
    sys.meta_path.insert(0, _AfterTorch())
