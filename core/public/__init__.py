"""`import devexplorer`: what scripts and tests of others may rely on. Any thread; torch is imported by the first call,
Qt never.

>>> import devexplorer
>>> devexplorer.add_virtual_gpus("2x Tesla T4")
['vgpu:0', 'vgpu:1']

Everything else below `devexplorer` may move between versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devexplorer.core import former_names

if TYPE_CHECKING:
    from devexplorer.core.doctor.testing import assert_placement_clean
    from devexplorer.core.virtual.backend import add_virtual_gpus

__all__ = ["__version__", "add_virtual_gpus", "assert_placement_clean"]
__version__ = "0.1.0"

_HOMES = {
    "add_virtual_gpus": "devexplorer.core.virtual.backend",
    "assert_placement_clean": "devexplorer.core.doctor.testing",
}

former_names.install()


def __getattr__(name: str) -> Any:
    """Import a function when it is first asked for: both bring torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'devexplorer' has no attribute '{name}'; it has {', '.join(__all__)}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
