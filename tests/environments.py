"""The Pythons for tests of engines in other environments: those that were made (`tests/make_environments.py`), and
another interpreter with torch where this machine has one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from devexplorer.core.environments.environment import OLDEST_PYTHON, OLDEST_TORCH, find, numbers

VARIABLE = "DEVEXPLORER_TEST_ENVIRONMENTS"
"""The folder that holds them, one folder each."""
NONE = f"no environments were made; run: python tests/make_environments.py FOLDER, then set {VARIABLE}=FOLDER"


def prepared() -> list[str]:
    """Their interpreters."""
    folder = os.environ.get(VARIABLE)
    return [] if folder is None else sorted(map(str, Path(folder).glob("*/bin/python")))


def another() -> str | None:
    """Another version of Python with a torch that serves, of those that are installed here; None: there is none."""
    for item in find("/"):
        version = numbers(item.version)
        serves = version[:2] >= OLDEST_PYTHON and bool(item.torch) and numbers(item.torch) >= OLDEST_TORCH
        if serves and version[:2] != sys.version_info[:2]:
            return item.python
    return None


def each_environment() -> pytest.MarkDecorator:
    """Runs a test in each of them (argument `python`); where there is none, it is skipped with the reason."""
    cases = [pytest.param(python, id=Path(python).parts[-3]) for python in prepared()]
    if not cases:
        cases = [pytest.param("", marks=pytest.mark.skip(reason=NONE), id="none")]
    other = another()
    reason = "no other version of Python with torch is installed here"
    skip = pytest.mark.skipif(other is None, reason=reason)
    return pytest.mark.parametrize("python", [*cases, pytest.param(other or "", marks=skip, id="another")])
