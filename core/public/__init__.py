"""`import devexplorer`: what scripts and tests of others may rely on. Any thread; torch is imported by the first call,
Qt never.

>>> import devexplorer
>>> devexplorer.add_virtual_gpus("2x Tesla T4")
['vgpu:0', 'vgpu:1']

The other names below are what the Python that the window shows needs to run as it is shown. Everything else below
`devexplorer` may move between versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devexplorer.core import former_names

if TYPE_CHECKING:
    from devexplorer.core.doctor.testing import assert_placement_clean
    from devexplorer.core.files.opening import tensors
    from devexplorer.core.files.own_models import hand_over
    from devexplorer.core.files.workspace_commands import OpenedWorkspace
    from devexplorer.core.isolation import notebook
    from devexplorer.core.models import samples
    from devexplorer.core.models.inputs import sample_inputs
    from devexplorer.core.models.run import first_tensor, total
    from devexplorer.core.observe.alive import held_by
    from devexplorer.core.observe.inside import attach, step
    from devexplorer.core.planner.records import FitSpec, ServingSpec
    from devexplorer.core.planner.worker.ask import planned
    from devexplorer.core.virtual.backend import add_virtual_gpus, move_lazily

__all__ = [
    "FitSpec",
    "OpenedWorkspace",
    "ServingSpec",
    "__version__",
    "add_virtual_gpus",
    "assert_placement_clean",
    "attach",
    "first_tensor",
    "hand_over",
    "held_by",
    "move_lazily",
    "notebook",
    "planned",
    "sample_inputs",
    "samples",
    "step",
    "tensors",
    "total",
]
__version__ = "0.1.0"

_HOMES = {
    "FitSpec": "planner.records",
    "OpenedWorkspace": "files.workspace_commands",
    "ServingSpec": "planner.records",
    "add_virtual_gpus": "virtual.backend",
    "assert_placement_clean": "doctor.testing",
    "attach": "observe.inside",
    "first_tensor": "models.run",
    "hand_over": "files.own_models",
    "held_by": "observe.alive",
    "move_lazily": "virtual.backend",
    "notebook": "isolation",
    "planned": "planner.worker.ask",
    "sample_inputs": "models.inputs",
    "samples": "models",
    "step": "observe.inside",
    "tensors": "files.opening",
    "total": "models.run",
}

former_names.install()


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is first asked for: most of it brings torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'devexplorer' has no attribute '{name}'; it has {', '.join(__all__)}")
    home = __import__(f"devexplorer.core.{_HOMES[name]}", fromlist=[name])  # which imports a submodule as well
    value = globals()[name] = getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
