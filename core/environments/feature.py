"""Environments: the engine, and commands, in another Python of this machine. Data; any thread."""

from __future__ import annotations

from devexplorer.core.base import module_prefix
from devexplorer.core.feature import Feature


def in_engine() -> None:
    """Keep what the engine runs with from being removed, where that is in the cache."""
    if "-m" not in module_prefix():
        from devexplorer.core.environments.code_cache import keep_in_use  # tarfile, hashlib: only in another Python

        keep_in_use()


FEATURE = Feature(
    pythons="core.environments.environment",
    engine="core.environments.feature:in_engine",
    actions="gui.environments.actions:actions",
)
