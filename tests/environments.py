"""The Pythons that were made for tests of engines in other environments (`tests/make_environments.py`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "DEVEXPLORER_TEST_ENVIRONMENTS"
"""The folder that holds them, one folder each."""
NONE = f"no environments were made; run: python tests/make_environments.py FOLDER, then set {VARIABLE}=FOLDER"


def prepared() -> list[str]:
    """Their interpreters."""
    folder = os.environ.get(VARIABLE)
    return [] if folder is None else sorted(map(str, Path(folder).glob("*/bin/python")))


def each_environment() -> pytest.MarkDecorator:
    """Runs a test in each of them (argument `python`); where there is none, it is skipped with the reason."""
    found = prepared()
    if not found:
        return pytest.mark.parametrize("python", [pytest.param("", marks=pytest.mark.skip(reason=NONE), id="none")])
    return pytest.mark.parametrize("python", found, ids=[Path(python).parts[-3] for python in found])
